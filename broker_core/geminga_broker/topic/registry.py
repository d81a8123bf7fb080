"""The producers of a topic: access modes, epochs, fencing (spec BR-20, PIP-68).

Follows AbstractTopic.addProducer and incrementTopicEpochIfNeeded. The topic stores the epoch
(`fencing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from geminga_broker.errors import BrokerError
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.states import ProducerEvent
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode, ServerError

WAITING_MAX = 1_000
"""Producers that may wait for exclusive access to one topic."""


class ProducerRegistry:
    """The producers of one topic. Synchronous."""

    def __init__(self, topic: str, producers_max: int) -> None:
        self.by_name: dict[str, Producer] = {}
        self.epoch: int | None = None
        self._topic = topic
        self.producers_max = producers_max
        self._exclusive: Producer | None = None
        self._waiting: deque[Producer] = deque()
        self.grant_access: Callable[[Producer], None] = _grant_access
        """Called for a waiting producer that got the topic."""

    @property
    def waiting(self) -> int:
        """Producers that wait for exclusive access."""
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether there is no producer, not even a waiting one."""
        return not self.by_name and not self._waiting

    def add(self, producer: Producer) -> None:
        """Register or queue the producer (then not `ready`). Raises BrokerError."""
        mode = producer.request.access_mode
        if mode == ProducerAccessMode.Shared:
            if self._exclusive is not None or self._waiting:
                raise BrokerError(ServerError.ProducerBusy, self._exists())
            self._insert(producer)
        elif mode == ProducerAccessMode.Exclusive:
            if self._exclusive is not None or self._waiting:
                raise BrokerError(ServerError.ProducerFenced, self._exists())
            if self.by_name and not self._replaces_all(producer):
                text = "Topic has existing shared producers"
                raise BrokerError(ServerError.ProducerFenced, text)
            self._take_over(producer)
        elif mode == ProducerAccessMode.ExclusiveWithFencing:
            self._check_epoch(producer)
            while self._waiting:
                fenced = BrokerError(ServerError.ProducerFenced, "Fenced out")
                self._waiting.popleft().refuse(fenced)
            for other in list(self.by_name.values()):
                other.disconnect()
            self._take_over(producer)
        elif mode == ProducerAccessMode.WaitForExclusive:
            self._wait_or_take_over(producer)
        else:
            raise BrokerError(ServerError.UnknownError, f"Invalid producer access mode: {mode}")

    def remove(self, producer: Producer) -> None:
        """The producer left; the next waiting one gets access."""
        if producer in self._waiting:
            self._waiting.remove(producer)
            return
        if self.by_name.get(producer.name) is not producer:
            return
        del self.by_name[producer.name]
        if producer is self._exclusive:
            self._exclusive = None
        while self._waiting and not self.by_name:
            following = self._waiting.popleft()
            try:
                self._take_over(following)
            except BrokerError:
                following.disconnect()
                continue
            self.grant_access(following)

    def holder_of_name(self, producer: Producer) -> Producer | None:
        """The producer with that name on another connection, unless the new one replaces it."""
        old = self.by_name.get(producer.name)
        if old is None or old.connection is producer.connection:
            return None
        return None if self._is_successor(old, producer) else old

    def disconnect_all(self) -> None:
        """Close all producers from the broker's side."""
        while self._waiting:
            self._waiting.popleft().disconnect()
        for producer in list(self.by_name.values()):
            producer.disconnect()

    def _exists(self) -> str:
        name = self._exclusive.name if self._exclusive is not None else None
        return f"Topic has an existing exclusive producer: {name}"

    def _check_epoch(self, producer: Producer) -> None:
        """Raises BrokerError ProducerFenced for a producer that returns after another had exclusive
        access.
        """
        wanted = producer.request.topic_epoch
        if wanted is not None and self.epoch is not None and wanted < self.epoch:
            text = (
                f"Topic epoch has already moved. Current epoch: {self.epoch}, "
                f"Producer epoch: {wanted}"
            )
            raise BrokerError(ServerError.ProducerFenced, text)

    def _replaces_all(self, producer: Producer) -> bool:
        """Whether the only producer is an earlier connection of this one."""
        old = self.by_name.get(producer.name)
        return old is not None and len(self.by_name) == 1 and self._is_successor(old, producer)

    def _wait_or_take_over(self, producer: Producer) -> None:
        if not self.by_name and self._exclusive is None:
            self._take_over(producer)
            return
        if len(self._waiting) >= WAITING_MAX:
            text = "Too many producers wait for exclusive access"
            raise BrokerError(ServerError.ProducerBusy, text)
        # Don't wait if another had the topic since: waiting can't change that.
        self._check_epoch(producer)
        producer.enter(ProducerEvent.QUEUED)
        self._waiting.append(producer)

    def _take_over(self, producer: Producer) -> None:
        self._check_epoch(producer)
        wanted = producer.request.topic_epoch
        epoch = wanted if wanted is not None else (-1 if self.epoch is None else self.epoch) + 1
        self._insert(producer)
        self._exclusive = producer
        self.epoch = producer.topic_epoch = epoch

    def _insert(self, producer: Producer) -> None:
        old = self.by_name.get(producer.name)
        if old is None:
            if self.producers_max and len(self.by_name) >= self.producers_max:
                raise BrokerError(ServerError.ProducerBusy, "Topic reached max producers limit")
        elif self._is_successor(old, producer):
            # The client reconnected before its old connection ended here.
            del self.by_name[old.name]
            old.close()
        else:
            text = f"Producer with name '{producer.name}' is already connected to topic"
            raise BrokerError(ServerError.ProducerBusy, text)
        self.by_name[producer.name] = producer
        producer.topic_epoch = self.epoch

    @staticmethod
    def _is_successor(old: Producer, new: Producer) -> bool:
        """Whether `new` is the same producer with a later epoch (Producer.isSuccessorTo)."""
        request = new.request
        return (
            not request.user_provided_name
            and not old.request.user_provided_name
            and request.epoch > old.epoch
        ) or (old.connection is new.connection and old.producer_id == new.producer_id)


def _grant_access(producer: Producer) -> None:
    producer.enter(ProducerEvent.GRANTED)
    producer.request.on_ready(producer)

"""Exclusive and Failover: one active consumer gets all, in order (spec BR-30)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.pump import DispatchContext, Dispatcher
from geminga_broker.subscription.special_metadata import special
from geminga_broker.subscription.strategies.choose import pick_active
from geminga_broker.topic.api import SubType
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class ActiveChoice:
    """Who is active, and telling the consumers; persistent and non-persistent alike."""

    def __init__(self, sub_type: int, topic: str, partition: int) -> None:
        self.active: Consumer | None = None
        self.sub_type = sub_type
        self._topic = topic
        self._partition = partition

    def check_add(self, consumers: Sequence[Consumer]) -> None:
        """Raises BrokerError ConsumerBusy if an Exclusive subscription is taken."""
        if self.sub_type == SubType.Exclusive and consumers:
            text = "Exclusive consumer is already connected"
            raise BrokerError(ServerError.ConsumerBusy, text)

    def update(self, consumers: Sequence[Consumer], added: Consumer | None) -> bool:
        """Choose anew after a change; True if another consumer is active now."""
        chosen = pick_active(consumers, self._topic, self._partition)
        if chosen is self.active:
            if added is not None and chosen is not None:
                self._tell(added)
            return False
        self.active = chosen
        for consumer in consumers:
            self._tell(consumer)
        return True

    def _tell(self, consumer: Consumer) -> None:
        if self.sub_type == SubType.Failover:
            consumer.notify_active(consumer is self.active)


class SingleActiveDispatcher(Dispatcher):
    """Follows PersistentDispatcherSingleActiveConsumer. Redelivery goes back to the mark-delete
    position, since order comes first; nothing is tracked per entry.
    """

    def __init__(self, context: DispatchContext, choice: ActiveChoice) -> None:
        super().__init__(context)
        self._choice = choice
        self._cursor_of = context.cursor_of
        self._not_before_s = 0.0

    @property
    def active(self) -> Consumer | None:
        """The active consumer."""
        return self._choice.active

    @property
    def sub_type(self) -> int:
        """Exclusive or Failover."""
        return self._choice.sub_type

    def admit(self, consumer: Consumer) -> None:
        """Raises BrokerError ConsumerBusy."""
        self._choice.check_add(self.consumers)
        self.consumers.append(consumer)

    def added(self, consumer: Consumer) -> None:
        """Choose anew and tell."""
        self._changed(consumer)

    def remove(self, consumer: Consumer) -> None:
        """The next in order goes on from the mark-delete position."""
        self.consumers.remove(consumer)
        self._changed(None)

    def _changed(self, added: Consumer | None) -> None:
        before = self._choice.active
        if not self._choice.update(self.consumers, added):
            return
        if before is not None and before.sent and self._choice.active is not None:
            # The old one may still acknowledge what it has: fewer duplicates if we wait a little.
            self._not_before_s = trio.current_time() + self.options.failover_delay_s
        if self._choice.active is not None:
            self.cursor = self._cursor_of(self._choice.active)
        self.reset()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """All from the mark-delete position, whatever was asked for; only for the active one."""
        if consumer is self._choice.active:
            consumer.redelivered.add(1, 0)
            self.reset()

    @property
    def pause_s(self) -> float:
        """The rest of the pause after a change of the active consumer."""
        wait_s = self._not_before_s - trio.current_time()
        return wait_s if wait_s > 0 else math.inf

    async def round(self) -> bool:
        """Send the next entries to the active consumer."""
        consumer = self._choice.active
        if consumer is None or trio.current_time() < self._not_before_s or not consumer.ready:
            return False
        self.begin_round()
        entries = self.carry
        if entries:
            self.carry = ()
        else:
            if not self.cursor.available():
                return False
            entries = await self.cursor.read(
                entries_max=self.entries_wanted(consumer.permits, consumer.average),
                bytes_max=self.bytes_max,
            )
            if not entries or self.stale:
                return self.stale
            entries = self.filter(self._without_markers(entries))
        self._send(consumer, entries)
        return True

    def _send(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        permits = consumer.permits
        end = len(entries)
        for index, entry in enumerate(entries):
            if permits <= 0:
                end = index
                break
            permits -= entry.messages
        if end < len(entries):
            self.carry = entries[end:]
            entries = entries[:end]
        if entries:
            consumer.send(entries, acknowledged=self.ack_sets_of(entries))

    def _without_markers(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Take out what the broker itself wrote, and acknowledge it."""
        markers = [e for e in entries if (m := special(e.data)) and m.HasField("marker_type")]
        if not markers:
            return entries
        self.cursor.ack([Ack(entry.position) for entry in markers])
        gone = {entry.position for entry in markers}
        return [entry for entry in entries if entry.position not in gone]

"""A durable subscription that retains a query's unread messages (spec SP-05, decision 18).

It receives nothing. On each topic its mark-delete is right before the last message in the query's
checkpoint, which therefore stays unacknowledged and retains its ledger. As long as the ledger
exists, no later message was trimmed (`_scan/_loss.py`).

No consumer stays attached, and none creates a topic.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

import geminga
import geminga.blocking
from geminga import ConsumerBusyError, GemingaError, InitialPosition, MessageId, TopicNotFoundError
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._positions import BEGIN, Position

logger = logging.getLogger("pyspark_pulsar")

BUSY_S = 30.0
"""How long to wait for another consumer of the subscription: the broker may still know that of an
earlier run.
"""
_BUSY_PAUSE_S = 0.25


class RetentionSubscription:
    """The subscription `name` on any number of topics."""

    def __init__(self, client: geminga.blocking.Client, name: str) -> None:
        self.name = name
        self._client = client
        self._marks: dict[str, Position] = {}
        """Its last known position; BEGIN if it was only created."""

    def hold(self, topics: Iterable[str]) -> None:
        """Create the subscription on these topics, at their first message where it is new. Raises
        GemingaError: ConsumerBusyError if another consumer uses it.
        """
        new = [topic for topic in topics if topic not in self._marks]
        made = for_each(self._make, new)
        self._marks.update({n: BEGIN for n, is_there in zip(new, made, strict=True) if is_there})

    def _make(self, topic: str) -> bool:
        try:
            self._attached(topic).close()
        except TopicNotFoundError:
            # Just deleted: planning will notice.
            return False
        return True

    def forget(self, topic: str) -> None:
        """The topic doesn't exist any more."""
        self._marks.pop(topic, None)

    def drop(self) -> None:
        """Delete the subscription on all topics. Logs failures."""
        for_each(self._drop, list(self._marks))
        self._marks.clear()

    def remove(self, topics: Sequence[str]) -> list[tuple[str, GemingaError]]:
        """Delete the subscription on these topics, also of others; missing topics are skipped.
        Returns the topics where it failed, with the errors.
        """
        found = for_each(self._removed, topics)
        return [(t, error) for t, error in zip(topics, found, strict=True) if error is not None]

    def _removed(self, topic: str) -> GemingaError | None:
        try:
            self._attached(topic).unsubscribe()
        except TopicNotFoundError:
            return None
        except GemingaError as error:
            return error
        return None

    def _drop(self, topic: str) -> None:
        try:
            self._attached(topic).unsubscribe()
        except GemingaError as error:
            logger.warning("%s: can't delete subscription %s: %s", topic, self.name, error)

    def move(self, offsets: Mapping[str, Position]) -> None:
        """Acknowledge everything before the last messages read. Logs failures: the next move
        repeats it.
        """
        behind = {
            topic: at
            for topic, at in offsets.items()
            if at.ledger_id >= 0 and at.entry > self._marks.get(topic, BEGIN)
        }
        for_each(lambda topic: self._move(topic, behind[topic]), list(behind))

    def _move(self, topic: str, offset: Position) -> None:
        # The entry before the offset's, which stays unacknowledged.
        mark = MessageId(offset.ledger_id, offset.entry_id - 1)
        try:
            consumer = self._attached(topic)
            try:
                consumer.acknowledge_cumulative(mark)
            finally:
                consumer.close()
        except GemingaError as error:
            logger.warning(
                "%s: can't move subscription %s, the next commit tries again: %s",
                topic,
                self.name,
                error,
            )
        else:
            self._marks[topic] = offset.entry

    def _attached(self, topic: str) -> geminga.blocking.Consumer:
        deadline_s = time.monotonic() + BUSY_S
        while True:
            try:
                return self._client.subscribe(
                    topic,
                    self.name,
                    initial_position=InitialPosition.EARLIEST,
                    # Without permits the broker sends nothing.
                    receiver_queue_size=0,
                    ack_receipt_enabled=True,
                    auto_create=False,
                )
            except ConsumerBusyError as error:
                if time.monotonic() > deadline_s:
                    raise ConsumerBusyError(
                        f"subscription {self.name} is in use: give each query a subscriptionName "
                        f"of its own ({error})",
                        code=error.code,
                        topic=topic,
                    ) from None
                threading.Event().wait(_BUSY_PAUSE_S)

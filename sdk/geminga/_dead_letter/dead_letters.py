"""Moves messages that were redelivered too often to the dead-letter topic (spec SDK-25)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from geminga._acknowledging.acknowledger import Acknowledger
from geminga._connection.core import Core
from geminga._dead_letter.sender import DeadLetterSender
from geminga._entries.entry import Entry
from geminga.errors import GemingaError
from geminga.message import Message
from geminga_protocol.message_id import MessageId

logger = logging.getLogger("geminga")


class DeadLetters:
    """A message is acknowledged after the dead-letter topic has stored it: it may be there twice,
    but isn't lost. If the send fails, it is redelivered as after a negative acknowledgement.
    """

    def __init__(
        self, core: Core, dead_letter_sender: DeadLetterSender, acknowledger: Acknowledger
    ) -> None:
        self._core = core
        self._dead_letter_sender = dead_letter_sender
        self._acknowledger = acknowledger
        self._moving: set[tuple[int, int]] = set()

    def takes(self, entry: Entry, indexes: Sequence[int]) -> bool:
        """Whether an entry was redelivered too often; then those of its messages go to the
        dead-letter topic.
        """
        unacked = self._acknowledger.unacked
        if unacked is None or not unacked.came(entry):
            return False
        entry.indexes = indexes
        self.without([(entry.ledger_id, entry.entry_id)])
        return True

    def without(self, positions: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Of entries to be redelivered, those before their last try; the others go to the
        dead-letter topic.
        """
        unacked = self._acknowledger.unacked
        if unacked is None:
            return positions
        dead: set[tuple[int, int]] = set()
        for entry in unacked.take_last_tries(positions):
            position = entry.ledger_id, entry.entry_id
            dead.update((*self._acknowledger.chunks.earlier(position), position))
            self._move_soon(entry)
        return [position for position in positions if position not in dead]

    def _move_soon(self, entry: Entry) -> None:
        position = entry.ledger_id, entry.entry_id
        if position not in self._moving:
            self._moving.add(position)
            self._core.nursery.start_soon(self._move, entry)

    async def _move(self, entry: Entry) -> None:
        position = entry.ledger_id, entry.entry_id
        acknowledger = self._acknowledger
        try:
            for index in list(entry.indexes):
                if acknowledger.acks.is_left(entry, index):
                    await self._dead_letter_sender.send_dead(Message(entry, index))
                    acknowledger.counts.dead_letters += 1
                    acknowledger.acknowledge(entry, index)
        except GemingaError as error:
            logger.warning("%s: a dead letter was not sent: %s", entry.topic, error)
            acknowledger.refuse(MessageId(*position), entry.redelivery_count)
        finally:
            self._moving.discard(position)

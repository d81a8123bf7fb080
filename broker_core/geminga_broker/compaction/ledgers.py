"""The compacted ledgers of one topic: creation, names, and collection of a crash's leftovers (spec
BR-50).

The cursor's property `CompactedTopicLedger` names the current one, as in Apache. The cursor's node
lists all of them, so that they are deleted with the cursor: a ledger is listed before its first
entry is written, until it is deleted. Until it is listed, it is unnamed (`client.unnamed`).
"""

from __future__ import annotations

import logging

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import DigestType, LedgerOptions, LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.errors import BookkeeperError, NoSuchLedger
from geminga_broker.compaction.ledger import PASSWORD
from geminga_broker.log.api import LogError, LogFenced, LogReadFailed, LogWriteFailed
from geminga_broker.log.catalog import COMPACTED, COMPACTED_TOPIC
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.options import COMPONENT, LedgerDurability
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import MessageIdData
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)

LEDGER_PROPERTY = "CompactedTopicLedger"
"""The cursor's property that names the compacted ledger (`COMPACTED_TOPIC_LEDGER_PROPERTY`)."""

INTERNAL = "#pulsar.internal."
"""Prefix of the broker's own properties of subscriptions."""

EMPTIED = INTERNAL + "geminga.emptied"
"""Instead of a ledger's name: compacted messages up to the mark-delete were deleted."""

_UPTO = "pulsar/compactedTo"


class CompactedLedgers:
    """Ledgers of one topic's compaction cursor. One caller at a time."""

    def __init__(
        self, client: BookkeeperClient, durability: LedgerDurability, topic: str, cursor: LogCursor
    ) -> None:
        self.client = client
        self._durability = durability
        self._topic = topic
        self._cursor = cursor

    @property
    def named(self) -> int | None:
        """The current ledger, None before the first compaction."""
        return self._cursor.properties.get(LEDGER_PROPERTY)

    @property
    def is_clean(self) -> bool:
        """Whether there is no ledger but the current one."""
        named = self.named
        expected = () if named is None else (named,)
        return self._cursor.writer.side_ledgers == expected

    @property
    def names_lost(self) -> bool:
        """Whether ledgers are listed without the named one: a damaged state, or no finished run."""
        listed = self._cursor.writer.side_ledgers
        return bool(listed) and self.named not in listed

    async def newest(self) -> tuple[int, Position] | None:
        """The newest complete one of the listed ledgers, and the end of its compaction. An open
        ledger is an unfinished run's; one whose messages were deleted is skipped. Raises
        LogReadFailed.
        """
        found: tuple[int, Position] | None = None
        for ledger_id in sorted(self._cursor.writer.side_ledgers):
            try:
                metadata = await self.client.metadata(ledger_id)
            except NoSuchLedger:
                continue
            except (BookkeeperError, MetadataError) as error:
                text = f"{self._topic}: compacted ledger {ledger_id}: {error}"
                raise LogReadFailed(text) from error
            upto = metadata.custom_metadata.get(_UPTO)
            if upto is not None and metadata.state is LedgerState.CLOSED:
                told = MessageIdData.FromString(upto)
                end = Position(told.ledgerId, told.entryId)
                if EMPTIED not in self._cursor.properties or end > self._cursor.mark_delete:
                    found = ledger_id, end
        return found

    async def create(self, upto: Position, partition: int) -> LedgerWriter:
        """A new ledger, listed on return. Raises LogWriteFailed, LogFenced."""
        message_id = MessageIdData(ledgerId=upto.ledger_id, entryId=upto.entry_id)
        if partition >= 0:
            message_id.partition = partition
        durability = self._durability
        options = LedgerOptions(
            durability.ensemble_size,
            durability.write_quorum,
            durability.ack_quorum,
            # As Apache's broker opens it.
            DigestType.CRC32,
            PASSWORD,
            {
                "application": b"pulsar",
                COMPONENT: COMPACTED,
                COMPACTED_TOPIC: self._topic.encode(),
                _UPTO: message_id.SerializeToString(),
            },
        )
        try:
            writer = await self.client.create(options, unnamed=True)
            known = self._cursor.writer.side_ledgers
            await self._cursor.writer.set_side_ledgers((*known, writer.ledger_id))
            await self.client.unnamed.name(writer.ledger_id)
        except (BookkeeperError, MetadataError) as error:
            raise LogWriteFailed(f"{self._topic}: compacted ledger not created: {error}") from error
        return writer

    async def collect(self) -> None:
        """Delete all ledgers but the current one. Raises LogWriteFailed, LogFenced."""
        # Delete a ledger only after the name of its successor is stored.
        await self._cursor.persist()
        if self.is_clean:
            return
        named = self.named
        gone = {each for each in self._cursor.writer.side_ledgers if each != named}
        if gone:
            await self._cursor.writer.drop_side_ledgers(gone)
            _log.info("topic=%s compacted ledgers deleted: %s", self._topic, sorted(gone))
        if not self.is_clean:
            await self._cursor.writer.set_side_ledgers(() if named is None else (named,))

    async def collect_quietly(self) -> None:
        """As `collect`, but logs a failure; the next call retries."""
        try:
            await self.collect()
        except LogFenced:
            # Another broker took the topic, and collects.
            pass
        except LogError as error:
            _log.warning("topic=%s: %s", self._topic, error)

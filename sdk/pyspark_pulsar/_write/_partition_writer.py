"""The producer of one partition of a topic, for one task (spec SP-06)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import geminga.blocking
from geminga.schema import AlreadyEncoded, SchemaInfo
from pyspark_pulsar._options._write_options import WriteOptions
from pyspark_pulsar._write._earlier import EarlierRows, NotComparable, Row
from pyspark_pulsar._write._faults import explained
from pyspark_pulsar._write._identity import ROW_BITS, ROWS_MAX, Identity
from pyspark_pulsar.errors import ConnectorError, WriteFailed

if TYPE_CHECKING:
    from geminga.blocking import Client, Producer, Receipt

logger = logging.getLogger("pyspark_pulsar")

BUSY_WAIT_S = 0.05
BUSY_WAIT_MAX_S = 2.0
RECEIPTS_MAX = 100_000
"""Receipts that one writer keeps before it waits for the oldest."""
MessageOptions = Mapping[str, Any]
"""Keywords of `submit` for one message."""


class PartitionWriter:
    """Sends messages in order, and checks that each has its receipt.

    With deduplication the n-th message has the n-th sequence id of the epoch. Messages that the
    broker may have already are sent with explicit ids, and dropped there; new ones are numbered by
    the producer, so that they can be batched.
    """

    def __init__(
        self, client: Client, topic: str, info: SchemaInfo, options: WriteOptions, who: Identity
    ) -> None:
        self.topic = topic
        self._client = client
        self._info = info
        self._options = options
        self._who = who
        self._sent = 0
        self._receipts: deque[Receipt] = deque()
        self._producer: Producer[bytes | None] | None = None
        self._known_up_to = -1
        self._is_numbering = False
        """Whether the producer numbers messages itself."""
        self._is_trusted = not who.is_lasting
        """Whether the broker is known to deduplicate, if required."""
        self._earlier: EarlierRows | None = None
        self._is_incomparable = False
        self._missing = 0
        """Messages that the broker dropped, and that are deleted by now."""

    def send(
        self, payloads: Sequence[bytes | None], message_options: Iterator[MessageOptions] | None
    ) -> None:
        """Queue messages, waiting for room. Raises ConnectorError."""
        try:
            self._send(payloads, message_options)
            self._settle(all_of_them=False)
            if not self._is_trusted:
                self._check_deduplication()
        except geminga.GemingaError as error:
            raise explained(self.topic, error) from error

    def _send(
        self, payloads: Sequence[bytes | None], message_options: Iterator[MessageOptions] | None
    ) -> None:
        if self._producer is None:
            self._open()
        producer = self._producer
        assert producer is not None
        first = self._sent
        self._sent += len(payloads)
        if self._who.is_lasting and self._sent > ROWS_MAX:
            raise WriteFailed(
                self.topic, f"a task has more than {ROWS_MAX} messages for it; repartition"
            )
        at = 0
        if self._who.is_lasting and not self._is_numbering:
            at = self._send_numbered(producer, payloads, message_options, first)
        send = producer.submit
        keep = self._receipts.append
        rest = payloads[at:] if at else payloads
        if message_options is None:
            for payload in rest:
                keep(send(payload))
        else:
            for payload, told in zip(rest, message_options, strict=True):
                keep(send(payload, **told))

    def _send_numbered(
        self,
        producer: Producer[bytes | None],
        payloads: Sequence[bytes | None],
        message_options: Iterator[MessageOptions] | None,
        first: int,
    ) -> int:
        """Send the messages that the broker may have, and one more, after which the producer
        numbers by itself. Returns their number.
        """
        number = self._who.first_sequence_id + first
        known = max(0, min(len(payloads), self._known_up_to - number + 1))
        told = [
            {} if message_options is None else next(message_options) for _ in payloads[: known + 1]
        ]
        receipts = [
            producer.submit(payloads[at], sequence_id=number + at, **told[at])
            for at in range(known)
        ]
        self._receipts.extend(receipts)
        if known and self._options.checks_order:
            self._compare(producer, receipts, payloads, told, number)
        if known == len(payloads):
            return known
        self._receipts.append(
            producer.submit(payloads[known], sequence_id=number + known, **told[known])
        )
        self._is_numbering = True
        self._end_comparing()
        return known + 1

    def _compare(
        self,
        producer: Producer[bytes | None],
        receipts: Sequence[Receipt],
        payloads: Sequence[bytes | None],
        told: Sequence[MessageOptions],
        number: int,
    ) -> None:
        """Check that dropped messages are stored with the same ids. Raises WriteFailed before
        anything new is sent, GemingaError.
        """
        producer.flush()
        for at, receipt in enumerate(receipts):
            if receipt.wait().ledger_id >= 0 or self._is_incomparable:
                continue
            try:
                found = self._earlier_rows().find(number + at)
            except NotComparable as error:
                self._is_incomparable = True
                self._warn(f"the messages of an earlier attempt can't be compared: {error}")
                continue
            if found is None:
                self._missing += 1
            elif found != Row.of(payloads[at], told[at]):
                raise WriteFailed(self.topic, self._other_row(number + at))

    def _earlier_rows(self) -> EarlierRows:
        if self._earlier is None:
            assert self._who.name is not None, "what lasts has a name"
            self._earlier = EarlierRows(self._client, self.topic, self._who.name)
        return self._earlier

    def _other_row(self, number: int) -> str:
        who = self._who
        return (
            f"message {number - who.first_sequence_id} of producer {who.name} in epoch {who.epoch}"
            " differs from the one that an earlier attempt wrote with its number: the rows came "
            "in another order, or changed, and the broker would drop rows that it doesn't have. "
            "Keep the rows in the same order in each attempt: after a shuffle (groupBy, join,"
            " repartition) add sortWithinPartitions over all columns. To continue, write these "
            "rows again under another producerName; those of the earlier attempt are then "
            "duplicated"
        )

    def _end_comparing(self) -> None:
        missing, self._missing = self._missing, 0
        if missing:
            self._warn(
                f"{missing} messages of an earlier attempt were deleted and can't be compared"
            )
        earlier, self._earlier = self._earlier, None
        if earlier is not None:
            earlier.close()

    def _warn(self, reason: str) -> None:
        logger.warning(
            "%s: producer %s: %s; if the rows came in another order, some are lost",
            self.topic,
            self._who.name,
            reason,
        )

    def _open(self) -> None:
        """Raises GemingaError, ProducerBusyError if the name is in use for too long, and
        WriteFailed if a later epoch was written with it.
        """
        give_up_s = time.monotonic() + self._options.producer_busy_timeout_s
        wait_s = BUSY_WAIT_S
        while True:
            try:
                self._producer = self._client.create_producer(
                    self.topic,
                    schema=AlreadyEncoded(self._info),
                    **self._options.producer.keywords(self._who.name),
                )
                break
            except geminga.ProducerBusyError:
                if not self._who.is_lasting or time.monotonic() + wait_s > give_up_s:
                    raise
                # The connection of an earlier attempt isn't closed yet.
                logger.info("%s: producer %s is still connected", self.topic, self._who.name)
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, BUSY_WAIT_MAX_S)
        self._is_numbering = False
        if self._who.is_lasting:
            self._known_up_to = self._producer.last_sequence_id
            self._check_epoch()
            self._is_trusted = self._is_trusted or self._known_up_to >= 0

    def _check_epoch(self) -> None:
        """The broker drops all sequence ids below the last one of the name. Raises WriteFailed."""
        known = self._known_up_to >> ROW_BITS
        if known > self._who.epoch:
            raise WriteFailed(
                self.topic,
                f"producer {self._who.name} has written epoch {known}, so that the broker would "
                f"drop all rows of epoch {self._who.epoch} as duplicates: deduplicationEpoch must "
                "only grow, and a stream can't go back in its checkpoint; use a later epoch, or "
                "another producerName",
            )

    def _check_deduplication(self) -> None:
        """Reconnect to get the last sequence id from the broker: it has none if it doesn't
        deduplicate the topic.
        """
        self.finish()
        self._open()
        if not self._is_trusted:
            raise WriteFailed(
                self.topic,
                "deduplication=true, but the broker doesn't deduplicate this topic: set "
                "brokerDeduplicationEnabled, or the policy of the namespace "
                "(pulsar-admin namespaces set-deduplication --enable); the first "
                f"{self._sent} messages of this task were written",
            )

    def _settle(self, *, all_of_them: bool) -> None:
        """Check the receipts that have arrived, or wait for each. Raises GemingaError."""
        receipts = self._receipts
        while receipts:
            oldest = receipts[0]
            if not oldest.is_done:
                if not all_of_them and len(receipts) < RECEIPTS_MAX:
                    return
                oldest.wait()
            if oldest.error is not None:
                raise oldest.error
            receipts.popleft()

    def finish(self) -> None:
        """Wait until each message has its receipt, then close the producer. Raises ConnectorError
        if one fails.
        """
        self._end_comparing()
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            try:
                producer.flush()
                self._settle(all_of_them=True)
            finally:
                producer.close()
        except geminga.GemingaError as error:
            raise explained(self.topic, error) from error

    def abandon(self) -> None:
        """Close the producer after a failure; unsent messages may be lost."""
        producer, self._producer = self._producer, None
        self._receipts.clear()
        earlier, self._earlier = self._earlier, None
        for each in (earlier, producer):
            try:
                if each is not None:
                    each.close()
            except (geminga.GemingaError, ConnectorError) as error:
                logger.debug("%s: closing after a failure: %s", self.topic, error)

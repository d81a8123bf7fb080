"""Queries to brokers for planning a read: topics, their first and last entries, their ledgers (spec
SP-01, SP-10). Nothing here creates a topic.

All of it uses readers, which work with every broker. Sizes of ledgers are estimated with a bounded
number of readers, or read from the REST API if `admin.url` is given.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import geminga
import geminga.blocking
from pyspark_pulsar._names import full_name, partition_of
from pyspark_pulsar._options import ReadOptions, TopicSelection
from pyspark_pulsar._positions import BEGIN, LedgerSpan, Position, TopicPartition
from pyspark_pulsar._rest import ledgers_by_rest
from pyspark_pulsar.errors import InvalidOption, TopicMissing

logger = logging.getLogger("pyspark_pulsar")

PROBE_WAIT_S = 0.5
"""How long to wait for an entry before checking again whether there is one."""
PROBE_TIMEOUT_S = 30.0
"""Time limit for an existing entry to arrive."""
PROBES_MAX = 192
"""Readers opened to learn one topic's layout."""
SAMPLE_ENTRIES = 16
"""Entries read to learn how many messages batches have."""
LEDGER_ENTRIES = 50_000
"""The probable size of a full ledger (managedLedgerMaxEntriesPerLedger)."""
PENDING_CHUNKED_MAX = 1000
"""Chunked messages that may be interleaved; a reader of old data meets those of all producers at
once.
"""
_BEHIND_ALL = 1 << 62
"""An entry id above those of any ledger."""


def expand(client: geminga.blocking.Client, selection: TopicSelection) -> list[TopicPartition]:
    """All partitions of the selected topics, each once. Raises TopicMissing, InvalidOption for an
    invalid name or pattern.
    """
    if selection.pattern is None:
        names = [full_name(name) for name in selection.names]
    else:
        names = _matching(client, selection.option, selection.pattern)
    found: dict[str, TopicPartition] = {}
    for name in names:
        for each in _parts(client, selection.option, name):
            found.setdefault(each.topic, each)
    return list(found.values())


def _matching(client: geminga.blocking.Client, option: str, pattern: str) -> list[str]:
    try:
        names = client.list_topics(re.compile(pattern))
    except geminga.InvalidArgumentError as error:
        raise InvalidOption(option, str(error)) from None
    if not names:
        raise TopicMissing(pattern, f"no topic name fully matches {option}")
    return names


def _parts(client: geminga.blocking.Client, option: str, name: str) -> list[TopicPartition]:
    if not name.startswith("persistent://"):
        raise InvalidOption(option, f"{name} is not persistent: its messages aren't stored")
    parent, number = partition_of(name)
    try:
        names = client.list_partitions(parent, auto_create=False)
        if number >= 0 and name not in names:
            # A topic with such a name need not be a partition.
            client.list_partitions(name, auto_create=False)
            names = [name]
    except geminga.TopicNotFoundError:
        raise TopicMissing(name, f"doesn't exist; {option} must name existing topics") from None
    except geminga.InvalidTopicNameError as error:
        raise InvalidOption(option, f"{name!r} is not a topic name: {error}") from None
    each = [TopicPartition(topic, partition_of(topic)[1], parent) for topic in names]
    return each if number < 0 else [one for one in each if one.topic == name]


class TopicProbe(NamedTuple):
    """Short reads of topics, with the settings of the read that is planned. All methods raise
    OperationTimeoutError and other errors of the client.
    """

    client: geminga.blocking.Client
    role_prefix: str = ""
    """Prefix of the names of the readers' subscriptions."""
    read_compacted: bool = False
    """Whether to read compacted messages, also those in trimmed ledgers."""

    @classmethod
    def of(cls, client: geminga.blocking.Client, options: ReadOptions) -> TopicProbe:
        """The settings for a read with these options."""
        return cls(client, options.subscription_role_prefix, options.read_compacted)

    def first_position(self, topic: str) -> Position | None:
        """The start of the first ledger with messages; None if there are none. Ledgers are trimmed
        whole, so nothing remains before it.
        """
        found = self.first_from(topic, BEGIN)
        return None if found is None else Position(found.ledger_id, 0)

    def last_position(self, topic: str) -> Position | None:
        """The last entry; None if the topic has no messages. Reads no entry."""
        with self._reader(topic) as reader:
            return _last(reader)

    def first_from(self, topic: str, at: Position) -> Position | None:
        """The first entry at `at` or after it that contains a message; None if there is none."""
        with self._reader(topic, at) as reader:
            return _first(reader, topic)

    def position_at(self, topic: str, time_ms: int) -> Position | None:
        """The first entry published at that time (ms since 1970) or later, as the broker's search
        finds it; None if all are older.
        """
        with self._reader(topic) as reader:
            last = _last(reader)
            if last is None:
                return None
            if self.read_compacted:
                with self._reader(topic, last) as at_last:
                    entries = _next(at_last, topic)
                if (entries[0].publish_time_ms if entries else 0) < time_ms:
                    return None
            reader.seek(time_ms)
            return _first(reader, topic, is_there=self.read_compacted)

    def entry_at(self, topic: str, at: Position) -> geminga.EntryBatch | None:
        """The entry at exactly `at`, None if it doesn't exist or has no message."""
        with self._reader(topic, at) as reader:
            entries = _next(reader, topic)
        if entries and (entries[0].ledger_id, entries[0].entry_id) == at[:2]:
            return entries[0]
        return None

    def messages_per_entry(self, topic: str, at: Position) -> float:
        """The mean number of messages of an entry, by the first entries from `at` on; 1.0 if there
        are none.
        """
        found: list[int] = []
        with self._reader(topic, at) as reader:
            while len(found) < SAMPLE_ENTRIES and (entries := _next(reader, topic)):
                found += [each.message_count for each in entries]
        return sum(found) / len(found) if found else 1.0

    @contextmanager
    def _reader(self, topic: str, at: Position | None = None) -> Iterator[geminga.blocking.Reader]:
        """A reader for a few entries from `at` on, or at the end of the topic, for seeking.
        Encrypted entries are returned as they are.
        """
        compacted = self.read_compacted
        reader = self.client.create_reader(
            topic,
            geminga.LATEST if at is None else start_id(at, read_compacted=compacted),
            start_message_id_inclusive=at is not None,
            receiver_queue_size=1,
            auto_create=False,
            read_compacted=compacted,
            subscription_role_prefix=self.role_prefix,
            crypto_failure_action=geminga.ConsumerCryptoFailureAction.CONSUME,
        )
        try:
            yield reader
        finally:
            reader.close()


def start_id(at: Position, *, read_compacted: bool) -> geminga.MessageId:
    """The start id of a reader whose first entry is the one at `at`, or the next one. The caller
    skips the entry's messages before `at`.
    """
    if at.ledger_id < 0 and not read_compacted:
        return geminga.EARLIEST
    # With an id, a reader of a compacted topic knows before the first entry that there is something
    # to read. From EARLIEST the last id is compared with a cursor of the log, which is after the
    # trimmed messages.
    return geminga.MessageId(max(0, at.ledger_id), max(0, at.entry_id))


def open_reader(
    client: geminga.blocking.Client,
    options: ReadOptions,
    topic: str,
    at: Position,
    *,
    queue_size: int,
) -> geminga.blocking.Reader:
    """A reader whose first entry is the one at `at`, or the next one. The caller closes it. Raises
    GemingaError.

    Entries that can't be decrypted are returned as they are: the caller must check.
    """
    return client.create_reader(
        topic,
        start_id(at, read_compacted=options.read_compacted),
        start_message_id_inclusive=True,
        receiver_queue_size=queue_size,
        auto_create=False,
        read_compacted=options.read_compacted,
        reader_name=options.reader_name,
        subscription_role_prefix=options.subscription_role_prefix,
        crypto_key_reader=options.key_reader(),
        crypto_failure_action=geminga.ConsumerCryptoFailureAction.CONSUME,
        max_pending_chunked_messages=PENDING_CHUNKED_MAX,
        expire_time_of_incomplete_chunked_message_s=0.0,
    )


def layout(
    client: geminga.blocking.Client,
    topic: str,
    options: ReadOptions,
    start: Position,
    stop: Position,
) -> list[LedgerSpan]:
    """The topic's ledgers from `start` to `stop`, in order. Last entries are exact if `stop` or the
    REST API gives them, else at most an eighth too low. At most PROBES_MAX readers are opened;
    after that sizes are guessed, and all ledgers but the last are missing.

    Raises InvalidOption if `admin.url` fails.
    """
    if start.ledger_id == stop.ledger_id >= 0:
        return [LedgerSpan(start.ledger_id, max(start.entry_id, 0), max(stop.entry_id, 0))]
    if options.client.admin_url is not None:
        return [
            span
            for span in ledgers_by_rest(options.client, topic)
            if start.ledger_id <= span.ledger_id <= stop.ledger_id and span.entries
        ]
    return _Prober(TopicProbe.of(client, options), topic).layout(start, stop)


class _Prober:
    """Finds a topic's layout with a bounded number of readers."""

    def __init__(self, topics: TopicProbe, topic: str) -> None:
        self._topics = topics
        self._topic = topic
        self._left = PROBES_MAX

    def layout(self, start: Position, stop: Position) -> list[LedgerSpan]:
        """See `layout`."""
        firsts = self._firsts(start, stop)
        if not firsts:
            return []
        found: list[LedgerSpan] = []
        sizes: list[int] = []
        for ledger, first in firsts:
            if ledger == stop.ledger_id:
                found.append(LedgerSpan(ledger, first, max(first, stop.entry_id)))
                continue
            if self._left <= 0:
                guess = sum(sizes) // len(sizes) if sizes else LEDGER_ENTRIES
                found.append(LedgerSpan(ledger, first, max(first, guess - 1), is_sure=False))
                continue
            last = self._last_entry(ledger)
            sizes.append(last + 1)
            found.append(LedgerSpan(ledger, first, max(first, last)))
        return found

    def _firsts(self, start: Position, stop: Position) -> list[tuple[int, int]]:
        """The ledgers and their first entries, using at most half of the probes."""
        least = self._left // 2
        at = self._probe(start)
        found: list[tuple[int, int]] = []
        while at is not None and at.ledger_id <= stop.ledger_id:
            begins = start.entry_id if at.ledger_id == start.ledger_id else 0
            found.append((at.ledger_id, max(begins, 0)))
            if at.ledger_id == stop.ledger_id:
                return found
            if self._left <= least:
                logger.info("%s has many ledgers: planning skips some", self._topic)
                break
            at = self._probe(Position(at.ledger_id, _BEHIND_ALL))
        if found:
            found.append((stop.ledger_id, 0))
        return found

    def _last_entry(self, ledger: int) -> int:
        """The last entry of a ledger that isn't the topic's last: exact if the ledger is full, else
        at most an eighth too low.
        """
        has, lacks = 0, LEDGER_ENTRIES
        if self._has(ledger, lacks - 1):
            has = lacks - 1
            while self._left > 0 and self._has(ledger, lacks):
                has, lacks = lacks, lacks * 2
        while self._left > 0 and lacks - has > max(1, has // 8):
            # So small ledgers take as few probes as large ones.
            middle = (has + lacks) // 2 if lacks <= 4 * has + 4 else max(has * 4, lacks // 8, 1)
            if self._has(ledger, middle):
                has = middle
            else:
                lacks = middle
        return has

    def _has(self, ledger: int, entry: int) -> bool:
        found = self._probe(Position(ledger, entry))
        return found is not None and found.ledger_id == ledger

    def _probe(self, at: Position) -> Position | None:
        self._left -= 1
        return self._topics.first_from(self._topic, at)


def _last(reader: geminga.blocking.Reader) -> Position | None:
    found = max(reader.last_message_ids())
    return Position(found.ledger_id, found.entry_id) if found.entry_id >= 0 else None


def _first(
    reader: geminga.blocking.Reader, topic: str, *, is_there: bool = False
) -> Position | None:
    entries = _next(reader, topic, is_there=is_there)
    return Position(entries[0].ledger_id, entries[0].entry_id) if entries else None


def _next(
    reader: geminga.blocking.Reader, topic: str, *, is_there: bool = False
) -> list[geminga.EntryBatch]:
    """The next entries of a reader; none at the end. After a seek to a time, brokers don't tell a
    reader of compacted messages that there are more; `is_there` says so. Raises
    OperationTimeoutError.
    """
    deadline_s = time.monotonic() + PROBE_TIMEOUT_S
    while is_there or reader.has_message_available():
        try:
            return reader.read_batches(PROBE_WAIT_S, bytes_max=1)
        except geminga.OperationTimeoutError:
            if _has_all(reader):
                # Chunks without the last one, or transaction markers.
                return []
            if time.monotonic() > deadline_s:
                raise geminga.OperationTimeoutError(
                    f"nothing came for {PROBE_TIMEOUT_S:.0f} s, though the topic has messages",
                    topic=topic,
                ) from None
    return []


def _has_all(reader: geminga.blocking.Reader) -> bool:
    """Whether everything was received, even if it gave no message."""
    last = max((each.ledger_id, each.entry_id) for each in reader.last_message_ids())
    return max((each.ledger_id, each.entry_id) for each in reader.received_ids()) >= last

"""What is asked of brokers when a read is planned: which topics there are, where they begin and end
(spec SP-01, SP-10). Nothing here makes a topic.

All is found by readers, over the protocol that every broker speaks. Sizes of ledgers are guessed by
a bounded number of them, or known from the REST API if there is `admin.url`.
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
from pyspark_pulsar._plan._readers import start_id
from pyspark_pulsar._positions import BEGIN, LedgerSpan, Position, TopicPartition
from pyspark_pulsar._rest import ledgers_by_rest
from pyspark_pulsar.errors import InvalidOption, TopicMissing

logger = logging.getLogger("pyspark_pulsar")

PROBE_WAIT_S = 0.5
"""How long nothing comes before it is asked again whether there is something."""
PROBE_TIMEOUT_S = 30.0
"""How long something may take to come that is there."""
PROBES_MAX = 192
"""Readers that are opened to learn one topic's layout."""
SAMPLE_ENTRIES = 16
"""Entries that are read to learn how many messages batches have."""
LEDGER_ENTRIES = 50_000
"""Where a ledger probably ends (managedLedgerMaxEntriesPerLedger)."""
_BEHIND_ALL = 1 << 62
"""An entry id that no ledger has."""


def expand(client: geminga.blocking.Client, selection: TopicSelection) -> list[TopicPartition]:
    """All partitions of the selected topics, each once. Raises TopicMissing, InvalidOption for a
    name or pattern that is none.
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
        names = client.topics_matching(re.compile(pattern))
    except geminga.InvalidArgument as error:
        raise InvalidOption(option, str(error)) from None
    if not names:
        raise TopicMissing(pattern, f"no topic has a name that matches the whole of {option}")
    return names


def _parts(client: geminga.blocking.Client, option: str, name: str) -> list[TopicPartition]:
    if not name.startswith("persistent://"):
        raise InvalidOption(option, f"{name} is not persistent: nothing of it can be read again")
    parent, number = partition_of(name)
    try:
        names = client.get_topic_partitions(parent, auto_create=False)
        if number >= 0 and name not in names:
            # A topic may have such a name without being a partition.
            client.get_topic_partitions(name, auto_create=False)
            names = [name]
    except geminga.TopicNotFound:
        raise TopicMissing(
            name, f"isn't there; {option} names topics that exist, reading makes none"
        ) from None
    except geminga.InvalidTopicName as error:
        raise InvalidOption(option, f"{name!r} is no topic's name: {error}") from None
    each = [TopicPartition(topic, partition_of(topic)[1], parent) for topic in names]
    return each if number < 0 else [one for one in each if one.topic == name]


class Looks(NamedTuple):
    """How readers look at a topic: as those of the read that is planned."""

    role_prefix: str = ""
    """Of the names of their subscriptions."""
    read_compacted: bool = False
    """Whether they see the compacted messages, also those whose ledgers are trimmed."""

    @classmethod
    def of(cls, options: ReadOptions) -> Looks:
        """As a read of these options looks at it."""
        return cls(options.subscription_role_prefix, options.read_compacted)


PLAIN = Looks()


def first_position(
    client: geminga.blocking.Client, topic: str, looks: Looks = PLAIN
) -> Position | None:
    """The beginning of the first ledger that has messages; None for a topic without. Ledgers are
    trimmed whole, so that nothing that is left lies before it.
    """
    found = first_from(client, topic, BEGIN, looks)
    return None if found is None else Position(found.ledger_id, 0)


def last_position(
    client: geminga.blocking.Client, topic: str, looks: Looks = PLAIN
) -> Position | None:
    """The last entry; None for a topic without messages. Nothing is read for it."""
    with _at_end(client, topic, looks) as reader:
        return _last(reader)


def first_from(
    client: geminga.blocking.Client, topic: str, at: Position, looks: Looks = PLAIN
) -> Position | None:
    """The first entry at that place or behind it that a message comes from; None if there is none.
    Raises Timeout, and whatever the client does.
    """
    with _reader(client, topic, at, looks) as reader:
        return _first(reader, topic)


def position_at(
    client: geminga.blocking.Client, topic: str, time_ms: int, looks: Looks = PLAIN
) -> Position | None:
    """The first entry that was published at that time (ms since 1970) or later, as the broker finds
    it by its search; None if all are older.
    """
    with _at_end(client, topic, looks) as reader:
        last = _last(reader)
        if last is None:
            return None
        if looks.read_compacted and _published_ms(client, topic, last, looks) < time_ms:
            return None
        reader.seek(time_ms)
        return _first(reader, topic, is_there=looks.read_compacted)


def _published_ms(client: geminga.blocking.Client, topic: str, at: Position, looks: Looks) -> int:
    with _reader(client, topic, at, looks) as reader:
        entries = _next(reader, topic)
    return entries[0].publish_timestamp if entries else 0


def entry_at(
    client: geminga.blocking.Client, topic: str, at: Position, looks: Looks = PLAIN
) -> geminga.ReceivedEntry | None:
    """The entry at exactly that place, None if it isn't there or no message comes of it. Raises
    Timeout, and whatever the client does.
    """
    with _reader(client, topic, at, looks) as reader:
        entries = _next(reader, topic)
    if entries and (entries[0].ledger_id, entries[0].entry_id) == at[:2]:
        return entries[0]
    return None


def messages_per_entry(
    client: geminga.blocking.Client, topic: str, at: Position, looks: Looks = PLAIN
) -> float:
    """How many messages entries have on the average, by the first from that place on; 1.0 if there
    are none.
    """
    found: list[int] = []
    with _reader(client, topic, at, looks) as reader:
        while len(found) < SAMPLE_ENTRIES and (entries := _next(reader, topic)):
            found += [each.message_count for each in entries]
    return sum(found) / len(found) if found else 1.0


def layout(
    client: geminga.blocking.Client,
    topic: str,
    options: ReadOptions,
    start: Position,
    stop: Position,
) -> list[LedgerSpan]:
    """The topic's ledgers from `start` to `stop`, in order. The last entries are exact where `stop`
    or the REST API tell them, else at most an eighth too low: at most PROBES_MAX readers are
    opened, then sizes are guessed, and ledgers are missing but for the last.

    Raises InvalidOption if `admin.url` can't be used.
    """
    if start.ledger_id == stop.ledger_id >= 0:
        return [LedgerSpan(start.ledger_id, max(start.entry_id, 0), max(stop.entry_id, 0))]
    if options.client.admin_url is not None:
        return [
            span
            for span in ledgers_by_rest(options.client, topic)
            if start.ledger_id <= span.ledger_id <= stop.ledger_id and span.entries
        ]
    return _Prober(client, topic, Looks.of(options)).layout(start, stop)


class _Prober:
    """Learns a topic's layout with a bounded number of readers."""

    def __init__(self, client: geminga.blocking.Client, topic: str, looks: Looks) -> None:
        self._client = client
        self._topic = topic
        self._looks = looks
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
        """The ledgers and the entries that they begin with, as far as half of the probes go."""
        least = self._left // 2
        at = self._probe(start)
        found: list[tuple[int, int]] = []
        while at is not None and at.ledger_id <= stop.ledger_id:
            begins = start.entry_id if at.ledger_id == start.ledger_id else 0
            found.append((at.ledger_id, max(begins, 0)))
            if at.ledger_id == stop.ledger_id:
                return found
            if self._left <= least:
                logger.info("%s has many ledgers: some are passed over in planning", self._topic)
                break
            at = self._probe(Position(at.ledger_id, _BEHIND_ALL))
        if found:
            found.append((stop.ledger_id, 0))
        return found

    def _last_entry(self, ledger: int) -> int:
        """An entry of a ledger that isn't the last: its own last if it is full, else one that is
        there and at most an eighth before that.
        """
        has, lacks = 0, LEDGER_ENTRIES
        if self._has(ledger, lacks - 1):
            has = lacks - 1
            while self._left > 0 and self._has(ledger, lacks):
                has, lacks = lacks, lacks * 2
        while self._left > 0 and lacks - has > max(1, has // 8):
            # Small ledgers are found as fast as large ones.
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
        return first_from(self._client, self._topic, at, self._looks)


@contextmanager
def _reader(
    client: geminga.blocking.Client, topic: str, at: Position, looks: Looks
) -> Iterator[geminga.blocking.Reader]:
    """A reader for a look at few entries, encrypted ones as they are."""
    reader = client.create_reader(
        topic,
        start_id(at, read_compacted=looks.read_compacted),
        start_message_id_inclusive=True,
        receiver_queue_size=1,
        auto_create=False,
        read_compacted=looks.read_compacted,
        subscription_role_prefix=looks.role_prefix,
        crypto_failure_action=geminga.ConsumerCryptoFailureAction.CONSUME,
    )
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def _at_end(
    client: geminga.blocking.Client, topic: str, looks: Looks
) -> Iterator[geminga.blocking.Reader]:
    """A reader that has nothing to read, until it seeks."""
    reader = client.create_reader(
        topic,
        geminga.LATEST,
        receiver_queue_size=1,
        auto_create=False,
        read_compacted=looks.read_compacted,
        subscription_role_prefix=looks.role_prefix,
        crypto_failure_action=geminga.ConsumerCryptoFailureAction.CONSUME,
    )
    try:
        yield reader
    finally:
        reader.close()


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
) -> list[geminga.ReceivedEntry]:
    """What a reader has next; nothing if there is nothing. Behind a seek to a time a reader of
    trimmed messages isn't told by the broker, so that it may be known that one `is_there`. Raises
    Timeout.
    """
    deadline_s = time.monotonic() + PROBE_TIMEOUT_S
    while is_there or reader.has_message_available():
        try:
            return reader.read_entries(PROBE_WAIT_S, bytes_max=1)
        except geminga.Timeout:
            if _has_all(reader):
                # Chunks without their last one, or marks of transactions.
                return []
            if time.monotonic() > deadline_s:
                raise geminga.Timeout(
                    f"nothing came for {PROBE_TIMEOUT_S:.0f} s, though there are messages",
                    topic=topic,
                ) from None
    return []


def _has_all(reader: geminga.blocking.Reader) -> bool:
    """Whether everything arrived, though no message may have come of it."""
    last = max((each.ledger_id, each.entry_id) for each in reader.last_message_ids())
    return max((each.ledger_id, each.entry_id) for each in reader.received_ids()) >= last

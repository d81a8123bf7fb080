from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga._consuming.inbox import Inbox, Permits
from geminga._consuming.start import Start
from geminga._entries.entry import Entry
from geminga_protocol.message_id import EARLIEST_ID, LATEST_ID, MessageId
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


def entry_of(entry_id: int, size: int = 0, source: Counter | None = None) -> Entry:
    by = Counter(1) if source is None else source
    made = Entry(1, entry_id, -1, 0, (), MessageMetadata(), b"payload", by, "topic")
    if size:
        made.bounds = [n * 10 for n in range(2 * size + 1)]
        made.message_count = size
        made.indexes = range(size)
    return made


class Counter:
    """A source that grants permits like a partition's consumer."""

    topic = "topic"
    partition = -1
    generation = 0

    def __init__(self, queue_size: int) -> None:
        self.permits = Permits(queue_size)
        self.broker = self.permits.start()

    def taken(self, entry: Entry) -> int:
        at = entry.at
        self.broker += self.permits.released(at - entry.released)
        entry.released = at
        return at + self.permits.step


@given(
    st.integers(1, 20),
    st.lists(
        st.one_of(st.integers(1, 8), st.sampled_from(["take", "many", "entries", "drop"])),
        max_size=60,
    ),
)
def test_permits_are_exact(queue_size: int, steps: list[int | str]) -> None:
    source = Counter(queue_size)
    inbox = Inbox()
    sent = taken = dropped = 0
    for step in steps:
        if isinstance(step, int):
            if source.broker > 0:  # a broker sends a whole batch as long as one permit is left
                source.broker -= step
                source.permits.used(step)
                inbox.put(entry_of(sent, step, source))
                sent += step
        elif step == "take":
            taken += inbox.take() is not None
        elif step == "many":
            taken += len(inbox.take_many(3, 10**9))
        elif step == "entries":
            taken += sum(map(len, inbox.take_entries(8)))
        else:
            before = inbox.messages
            source.broker += source.permits.released(inbox.discard(source))
            dropped += before - inbox.messages
        assert source.permits.outstanding == source.broker
        assert inbox.messages == sent - taken - dropped
    while inbox.take() is not None:
        pass
    # With all taken the broker may send at least half the queue again: it never stalls.
    assert source.broker > queue_size - source.permits.threshold


def test_take_many_keeps_to_bytes() -> None:
    source = Counter(100)
    inbox = Inbox()
    inbox.put(entry_of(0, 4, source))
    inbox.put(entry_of(1, 4, source))
    assert len(inbox.take_many(100, 1)) == 1
    assert len(inbox.take_many(2, 1000)) == 2
    assert len(inbox.take_many(100, 1000)) == 5
    assert inbox.take_many(100, 1000) == []
    assert inbox.take() is None


def sized(entry_id: int, sizes: list[int], indexes: list[int] | None) -> Entry:
    """A batch of messages of those sizes, with 4 bytes of metadata each."""
    made = entry_of(entry_id, len(sizes), Counter(1000))
    bounds = [4]
    for size in sizes:
        bounds += [bounds[-1] + 4, bounds[-1] + 4 + size + 4]
    made.bounds = bounds
    made.payload = bytes(bounds[-1])
    made.indexes = range(len(sizes)) if indexes is None else indexes
    return made


@given(
    st.lists(
        st.lists(st.integers(0, 20), min_size=1, max_size=6).flatmap(
            lambda sizes: st.tuples(
                st.just(sizes),
                st.none()
                | st.sets(st.integers(0, len(sizes) - 1), min_size=1).map(
                    lambda each: sorted(each)
                ),
            )
        ),
        max_size=5,
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["take", "many", "entries"]),
            st.integers(1, 10),
            st.sampled_from([1, 10, 30, 1000, math.inf]),
        ),
        max_size=20,
    ),
)
@pytest.mark.slow
def test_what_is_taken_is_what_would_be_one_by_one(
    batches: list[tuple[list[int], list[int] | None]], steps: list[tuple[str, int, float]]
) -> None:
    inbox = Inbox()
    left: list[tuple[int, int, int]] = []
    for entry_id, (sizes, indexes) in enumerate(batches):
        inbox.put(sized(entry_id, sizes, indexes))
        wanted = range(len(sizes)) if indexes is None else indexes
        left += [(entry_id, n, sizes[n]) for n in wanted]
    for step, messages_max, bytes_max in steps:
        if step == "take":
            message = inbox.take()
            found = [] if message is None else [message]
            messages_max = 1
            bytes_max = math.inf
        elif step == "many":
            found = inbox.take_many(messages_max, bytes_max)
        else:
            entries = inbox.take_entries(bytes_max)
            got = [(each.entry_id, n) for each in entries for n in each.indexes]
            assert got == [at[:2] for at in left[: len(got)]]
            size_bytes = sum(at[2] for at in left[: len(got)])
            assert size_bytes == sum(each.size_bytes for each in entries)
            assert size_bytes <= bytes_max or len(entries) == 1
            left = left[len(got) :]
            # Only whole entries, and no more because the next one is too much.
            assert not left or not got or left[0][0] != got[-1][0]
            following = sum(at[2] for at in left if at[0] == left[0][0])
            assert not left or size_bytes + following > bytes_max
            assert bool(got) or not left
            continue
        expected: list[tuple[int, int, int]] = []
        for at in left[:messages_max]:
            bytes_max -= at[2]
            if bytes_max < 0 and expected:
                break
            expected.append(at)
        assert [(each._entry.entry_id, each._index) for each in found] == [
            at[:2] for at in expected
        ]
        left = left[len(expected) :]
        assert inbox.messages == len(left)


def test_discard_by_position() -> None:
    one, two = Counter(10), Counter(10)
    inbox = Inbox()
    for source in (one, two):
        inbox.put(entry_of(0, 2, source))
        inbox.put(entry_of(1, 0, source))
    assert inbox.discard(one, {(1, 0)}) == 2
    assert inbox.messages == 4
    assert inbox.holds(one)
    assert inbox.discard(one) == 1
    assert not inbox.holds(one)
    assert inbox.discard(two, {(5, 5)}) == 0


def test_no_queue_means_one_at_a_time() -> None:
    permits = Permits(0)
    assert permits.start() == 0
    assert permits.demand() == 1
    assert permits.demand() == 0
    permits.used(4)
    assert permits.released(4) == 0
    assert permits.demand() == 4
    assert permits.outstanding == 1


def wanted(start: Start, entry: Entry) -> list[int]:
    return list(range(start.first_of(entry), entry.message_count))


def test_start_within_a_batch() -> None:
    batch, single = entry_of(5, 4), entry_of(5)
    at = MessageId(1, 5, batch_index=1, batch_size=4)
    assert wanted(Start(at, False), batch) == [2, 3]
    assert wanted(Start(at, True), batch) == [1, 2, 3]
    assert wanted(Start(MessageId(1, 5), False), batch) == []
    assert wanted(Start(MessageId(1, 5), True), batch) == [0, 1, 2, 3]
    assert wanted(Start(MessageId(1, 5), False), single) == []
    assert wanted(Start(MessageId(1, 4), False), single) == [0]
    assert wanted(Start(None, False), single) == [0]


def test_start_moves_with_what_is_taken() -> None:
    start = Start(EARLIEST_ID, False)
    assert start.resume_id == EARLIEST_ID
    batch = entry_of(5, 4)
    batch.at = 2
    start.taken(batch)
    resume = start.resume_id
    assert resume is not None
    assert (resume.ledger_id, resume.entry_id, resume.batch_index) == (1, 5, 1)
    start.lost(())
    assert wanted(start, entry_of(5, 4)) == [2, 3]
    batch.at = 4
    start.taken(batch)
    start.lost(())
    assert wanted(start, entry_of(5, 4)) == []
    assert wanted(start, entry_of(6, 4)) == [0, 1, 2, 3]
    start.moved(12345)
    assert wanted(start, entry_of(5, 4)) == [0, 1, 2, 3]


def test_a_durable_subscription_gets_again_what_it_took_after_a_seek() -> None:
    start = Start(None, False, durable=True)
    start.moved(MessageId(1, 5, batch_index=0, batch_size=4))
    batch = entry_of(5, 4)
    batch.at = 3
    start.taken(batch)
    assert wanted(start, entry_of(5, 4)) == [1, 2, 3]


def test_is_behind() -> None:
    last = MessageId(1, 5, batch_index=3)
    nothing = MessageId(-1, -1)
    before, at_last = MessageId(1, 4), MessageId(1, 5)
    assert not Start(EARLIEST_ID, False).is_behind(nothing, None)
    assert Start(EARLIEST_ID, False).is_behind(last, None)
    assert not Start(LATEST_ID, False).is_behind(last, None)
    assert not Start(LATEST_ID, False).is_behind(last, at_last)
    assert Start(None, False).is_behind(last, before)
    assert not Start(None, False).is_behind(last, at_last)
    assert not Start(last, False).is_behind(last, before)
    assert Start(last, True).is_behind(last, before)
    taken = Start(None, False)
    batch = entry_of(5, 4)
    for batch.at in (3, 4):
        taken.taken(batch)
        assert taken.is_behind(last, before) is (batch.at == 3)


def test_seek_id_names_what_is_left() -> None:
    at = MessageId(1, 5, 2, 1, 4)
    assert Start(None, False).seek_id(at).ack_set == (0b1100,)
    assert Start(None, True).seek_id(at).ack_set == (0b1110,)
    assert Start(None, False).seek_id(MessageId(1, 5, 2, 3, 4)).ack_set == ()
    assert Start(None, False).seek_id(MessageId(1, 5)).ack_set == ()


@pytest.mark.alone
def test_many_sources_are_discarded_in_one_walk() -> None:
    sources = [Counter(10) for _ in range(3000)]
    inbox = Inbox()
    for n in range(20):
        for source in sources:
            inbox.put(entry_of(n, 2, source))
    began_s = time.thread_time()
    for source in sources[:-1]:
        assert inbox.begin_of(source) == (1, 0)
        assert inbox.waiting_of(source) == (40, 0, 0)
        assert inbox.discard(source) == 40
    # A walk for each takes 6 s of CPU, one for all 0.1 s.
    assert time.thread_time() - began_s < 2
    assert inbox.messages == 40
    assert [message._entry.entry_id for message in inbox.take_many(100, math.inf)] == [
        n for n in range(20) for _ in range(2)
    ]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=60))
def test_order_is_kept_when_some_are_thrown_away(steps: list[tuple[int, int]]) -> None:
    sources = [Counter(100) for _ in range(3)]
    inbox = Inbox()
    model: list[tuple[int, int]] = []
    for at, (what, number) in enumerate(steps):
        source = sources[number]
        own = [entry for entry, by in model if by == number]
        if what < 4:
            inbox.put(entry_of(at, 0, source))
            model.append((at, number))
        elif what == 4:
            message = inbox.take()
            assert (None if message is None else message._entry.entry_id) == (
                model.pop(0)[0] if model else None
            )
        elif what == 5:
            assert inbox.discard(source, {(1, entry) for entry in own[1:]}) == len(own[1:])
            model = [each for each in model if each[0] not in own[1:]]
        elif what == 6:
            assert inbox.discard(source) == len(own)
            model = [each for each in model if each[1] != number]
        elif what == 7:
            assert inbox.begin_of(source) == ((1, own[0]) if own else None)
        elif what == 8:
            assert inbox.waiting_of(source) == (len(own), 0, 0)
        assert inbox.holds(source) == any(by == number for _, by in model)
        assert inbox.messages == len(model)
    assert [each._entry.entry_id for each in inbox.take_entries(math.inf)] == [e for e, _ in model]

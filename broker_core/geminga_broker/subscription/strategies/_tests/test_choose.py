"""The pure choosers: active consumer, round robin, hash ring, ranges (BR-30, BR-31)."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import payload
from geminga_broker.log.entry import LogEntry
from geminga_broker.subscription.sticky_keys import plain_key, slot_of
from geminga_broker.subscription.strategies.choose import RING_POINTS, RoundRobin, pick_active
from geminga_broker.subscription.strategies.hash_ring import CannotAssign, HashRing, StickyRanges
from geminga_protocol import payload as payloads
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.ids import EARLIEST
from geminga_protocol.keys import KEY_SLOTS, key_slot, murmur3_32, sticky_key
from geminga_protocol.pb.pulsar_api_pb2 import KeyValue, MessageMetadata


class Member:
    def __init__(self, name: str, permits: int = 0, priority: int = 0) -> None:
        self.name = name
        self.permits = self.room = permits
        self.priority = priority
        self.ready = permits > 0

    def __repr__(self) -> str:
        return f"{self.name}:{self.permits}"


def test_active_consumer_of_a_partition() -> None:
    members = [Member("c"), Member("a"), Member("b"), Member("0", priority=1)]
    chosen = [pick_active(members, "t", partition) for partition in range(4)]
    assert [member.name for member in chosen if member] == ["a", "b", "c", "a"]
    assert pick_active([], "t", 0) is None


def test_active_consumer_of_a_plain_topic_is_nearest_on_a_ring() -> None:
    for number in range(50):
        members = [Member(f"m{n}") for n in range(1 + number % 7)]
        ring = {
            murmur3_32(f"{member.name}{point}".encode()): member
            for member in members
            for point in range(RING_POINTS)
        }
        above = [point for point in sorted(ring) if point >= murmur3_32(f"t{number}".encode())]
        expected = ring[(above or sorted(ring))[0]]
        assert pick_active(members[::-1], f"t{number}", -1) is expected


members_strategy = st.lists(
    st.tuples(st.integers(-3, 60), st.integers(0, 2)), min_size=0, max_size=6
)


@given(members_strategy, st.lists(st.integers(1, 12), max_size=80), st.integers(1, 20))
def test_round_robin_gives_all_in_order_within_permits(
    made: list[tuple[int, int]], counts: list[int], run_max: int
) -> None:
    members = [Member(f"m{n}", permits, level) for n, (permits, level) in enumerate(made)]
    runs = RoundRobin(run_max).assign(counts, members)
    at = 0
    used = dict.fromkeys(members, 0)
    for member, start, end in runs:
        assert start == at < end <= start + run_max
        at = end
        for count in counts[start:end]:
            # Each entry found a permit left before it.
            assert used[member] < member.permits
            used[member] += count
    if at < len(counts):
        assert all(used[m] >= m.permits for m in members if m.ready)
    for member in members:
        if used[member]:
            better = [m for m in members if m.ready and m.priority < member.priority]
            assert all(used[m] >= m.permits for m in better)


def test_round_robin_continues_after_the_last_consumer() -> None:
    members = [Member("a", 100), Member("b", 100)]
    chooser = RoundRobin(20)
    taken = [chooser.assign([1], members)[0][0].name for _ in range(4)]
    assert taken == ["a", "b", "a", "b"]


def test_ring_spreads_evenly_and_moves_little() -> None:
    ring: HashRing[Member] = HashRing()
    members = [Member(f"consumer-{n}") for n in range(4)]
    assert ring.owner(5) is None
    for member in members:
        ring.add(member, ())
    before = [ring.owner(slot) for slot in range(1, KEY_SLOTS)]
    for member in members:
        assert 0.15 < before.count(member) / KEY_SLOTS < 0.35
        assert sum(end - start + 1 for start, end in ring.ranges(member)) > 1000
    ring.remove(members[0])
    after = [ring.owner(slot) for slot in range(1, KEY_SLOTS)]
    for old, new in zip(before, after, strict=True):
        assert new is old or old is members[0]
        assert new is not members[0]


def test_the_ring_distinguishes_consumers_with_one_name() -> None:
    ring: HashRing[Member] = HashRing()
    one, two = Member("same"), Member("same")
    ring.add(one, ())
    ring.add(two, ())
    owners = [ring.owner(slot) for slot in range(1, KEY_SLOTS)]
    assert 0.3 < owners.count(one) / KEY_SLOTS < 0.7
    ring.remove(one)
    assert {ring.owner(slot) for slot in range(1, KEY_SLOTS)} == {two}
    ring.remove(two)
    assert ring.owner(1) is None


ranges_strategy = st.lists(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=3), max_size=6
)


@given(ranges_strategy)
def test_sticky_ranges_against_a_table(wanted: list[list[tuple[int, int]]]) -> None:
    ranges: StickyRanges[Member] = StickyRanges()
    table: dict[int, Member] = {}
    for number, pairs in enumerate(wanted):
        member = Member(str(number))
        slots = [slot for start, end in pairs for slot in range(start, end + 1)]
        valid = all(start <= end for start, end in pairs) and len(set(slots)) == len(slots)
        try:
            ranges.add(member, tuple(pairs))
        except CannotAssign:
            assert not valid or any(slot in table for slot in slots)
        else:
            assert valid
            assert not any(slot in table for slot in slots)
            table.update(dict.fromkeys(slots, member))
        assert [ranges.owner(slot) for slot in range(70)] == [table.get(n) for n in range(70)]
    for gone in set(table.values()):
        ranges.remove(gone)
        table = {slot: member for slot, member in table.items() if member is not gone}
        assert [ranges.owner(slot) for slot in range(70)] == [table.get(n) for n in range(70)]


metadata_strategy = st.fixed_dictionaries(
    {"producer_name": st.text(max_size=3) | st.just("p" * 200)},
    optional={
        "sequence_id": st.integers(0, 2**64 - 1),
        "publish_time": st.integers(0, 2**64 - 1),
        "properties": st.lists(
            st.builds(KeyValue, key=st.text(max_size=3), value=st.text(max_size=140)), max_size=2
        ),
        "replicated_from": st.text(max_size=2),
        "partition_key": st.text(max_size=20) | st.just("a2V5") | st.just("k" * 130),
        "partition_key_b64_encoded": st.booleans(),
        "compression": st.sampled_from((0, 1)),
        "num_messages_in_batch": st.integers(1, 1000),
        "ordering_key": st.binary(max_size=4),
        "deliver_at_time": st.integers(0, 2**40),
        "marker_type": st.integers(1, 30),
        "schema_version": st.binary(max_size=8),
    },
)


@given(metadata_strategy, st.integers(0, 60))
def test_a_key_found_without_parsing_is_the_parsed_one(fields: dict[str, Any], cut: int) -> None:
    metadata = MessageMetadata(**{"sequence_id": 1, "publish_time": 1, **fields})
    data = memoryview(payloads.build(metadata, b"x"))
    key = plain_key(data)
    if key is not None:
        assert key == sticky_key(metadata)
        assert not metadata.HasField("marker_type")
        assert not metadata.deliver_at_time
    # Torn entries must not stop dispatch.
    plain_key(data[: len(data) - cut])


def test_common_entries_need_no_parsing() -> None:
    assert plain_key(payload(1, key="some-key")) == b"some-key"
    properties = [KeyValue(key="a", value="b")] * 2
    metadata = MessageMetadata(
        producer_name="p", sequence_id=300, publish_time=1 << 40, partition_key="k"
    )
    metadata.properties.extend(properties)
    assert plain_key(memoryview(payloads.build(metadata, b""))) == b"k"


def test_five_megabytes_of_properties_do_not_hold_up_the_others() -> None:
    """Read one by one they take a tenth of a second, in each look for the key."""
    metadata = MessageMetadata(
        producer_name="p", sequence_id=300, publish_time=1 << 40, partition_key="k"
    )
    metadata.properties.extend([KeyValue(key="a", value="b")] * 600_000)
    entry = LogEntry(EARLIEST, memoryview(payloads.build(metadata, b"")))
    assert plain_key(entry.data) is None
    assert slot_of(entry, 0) == key_slot(b"k")
    assert cpu_s(lambda: (plain_key(entry.data), slot_of(entry, 0)), 0.02) < 0.02


@pytest.mark.alone
def test_many_sticky_ranges_are_taken_fast() -> None:
    """As many as fit in a frame; existing ranges aren't moved for each new one."""
    members = [Member(f"m{number}") for number in range(6)]
    taken = [tuple((n * 6 + number, n * 6 + number) for n in range(10_000)) for number in range(6)]
    took_s = [1e9] * len(members)
    gc.disable()
    try:
        for _ in range(3):
            ranges: StickyRanges[Member] = StickyRanges()
            for number, member in enumerate(members):
                began_s = time.thread_time()
                ranges.add(member, taken[number])
                took_s[number] = min(took_s[number], time.thread_time() - began_s)
    finally:
        gc.enable()
    for number, member in enumerate(members):
        assert ranges.owner(6 * 777 + number) is member
        assert ranges.ranges(member)[777] == (6 * 777 + number, 6 * 777 + number)
    assert took_s[-1] < 14 * took_s[0]  # 26 times, if they were


def test_gaps_between_ranges_of_hashes() -> None:
    def gaps(*ranges: tuple[int, int], at_most: int = 9) -> list[tuple[int, int]]:
        selector: StickyRanges[Member] = StickyRanges()
        for number, each in enumerate(ranges):
            selector.add(Member(f"m{number}"), (each,))
        return selector.gaps(at_most)

    assert gaps() == [(0, 65535)]
    assert gaps((0, 65535)) == []
    assert gaps((10, 19), (0, 4), (20, 30)) == [(5, 9), (31, 65535)]
    assert gaps((10, 30), (0, 4), at_most=1) == [(5, 9)]

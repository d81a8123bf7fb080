"""Readers of old entries leave the loop to new messages."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.fake_log import FakeCursor
from geminga_broker._tests.topic_world import World
from geminga_broker.subscription.catch_up import (
    BURST_S,
    BUSY_S,
    BYTE_S,
    ENTRY_S,
    LATE_S,
    ROUND_ENTRIES,
    SHARE_MAX,
    SHARE_MIN,
    CatchUp,
)
from geminga_broker.topic.api import InitialPosition, SubType


def test_no_pauses_while_nothing_is_published():
    catch_up = CatchUp()
    assert not catch_up.busy(10.0)
    assert catch_up.pause_s(100, 1 << 20, 10.0) == 0


def test_a_publish_counts_as_tail_work_for_a_while():
    catch_up = CatchUp()
    catch_up.appended(1, 0)
    assert catch_up.busy(10.0)
    assert catch_up.busy(10.0 + BUSY_S * 0.9)
    assert not catch_up.busy(10.0 + BUSY_S)
    assert catch_up.pause_s(100, 1 << 20, 10.0 + BUSY_S) == 0


@given(
    rounds=st.lists(
        st.tuples(st.integers(1, 200), st.integers(0, 1 << 20), st.floats(0, 0.01)), min_size=1
    )
)
def test_all_pumps_together_stay_within_their_share(rounds):
    """An oracle of sums: their cost over the passed time, minus one burst."""
    catch_up = CatchUp()
    now_s = used_s = 0.0
    for entries, size, late_s in rounds:
        catch_up.appended(0, 1)
        cost_s = entries * ENTRY_S + size * BYTE_S
        used_s += cost_s
        now_s += cost_s
        now_s += catch_up.pause_s(entries, size, now_s) + late_s
        assert used_s / SHARE_MAX <= now_s + BURST_S + 1e-9


@settings(max_examples=10)
@given(st.integers(1, 20_000), st.integers(0, 4096))
def test_old_entries_are_read_faster_than_new_ones_come(per_s, size):
    catch_up = CatchUp()
    for _ in range(100):
        catch_up.paused(LATE_S * 2)
    now_s = began_s = 100.0
    came = read = 0
    while now_s < began_s + 1:
        due = int((now_s - began_s) * per_s) + 1
        catch_up.appended(due - came, (due - came) * size)
        came = due
        read += ROUND_ENTRIES
        now_s += max(0.0001, catch_up.pause_s(ROUND_ENTRIES, ROUND_ENTRIES * size, now_s))
    assert read > 1.2 * came


def test_late_pauses_lower_the_share():
    catch_up = CatchUp()
    for _ in range(100):
        catch_up.paused(LATE_S * 2)
    assert catch_up.share == SHARE_MIN
    for _ in range(1000):
        catch_up.paused(0)
    assert catch_up.share == SHARE_MAX


@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Shared, SubType.Key_Shared])
async def test_a_pump_that_reads_ledgers_goes_slower_beside_publishes(
    world: World, sub_type: int, autojump_clock, monkeypatch
):
    sizes: list[int] = []
    read = FakeCursor.read

    async def read_from_ledgers(self, **bounds: object):
        found = await read(self, **bounds)
        self.fetched = (self.fetched[0] + len(found), self.fetched[1])
        sizes.append(len(found))
        return found

    monkeypatch.setattr(FakeCursor, "read", read_from_ledgers)
    topic = world.topic()
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n) for n in range(5000)])
    world.environment.catch_up.busy(trio.current_time())
    await trio.sleep(1)
    connection = FakeConnection()

    async def take(messages: int) -> float:
        began_s = trio.current_time()
        consumer.flow(messages)
        wanted = len(connection.messages()) + messages
        while len(connection.messages()) < wanted:
            world.environment.catch_up.appended(busy, 0)
            await trio.sleep(0.001)
        return trio.current_time() - began_s

    consumer = await topic.subscribe(
        subscribe_request(
            connection, 1, "s", sub_type=sub_type, initial_position=InitialPosition.Earliest
        )
    )
    busy = 0
    assert await take(1000) < 0.01
    assert max(sizes) == topic.options.dispatch_entries_max
    busy = 1
    await take(200)
    sizes.clear()
    # Work takes no virtual time: only pauses do.
    assert await take(2000) == pytest.approx(2000 * ENTRY_S / SHARE_MAX, rel=0.2)
    assert max(sizes) <= ROUND_ENTRIES

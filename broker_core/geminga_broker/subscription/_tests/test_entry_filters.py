"""Entry filters: sent, acknowledged and rescheduled entries."""

from __future__ import annotations

from importlib import metadata

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import Entry
from geminga_broker.subscription import entry_filters
from geminga_broker.subscription.entry_filters import FilterContext, FilterResult, load_filters
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_runtime.settings import ConfigError

ALL = [SubType.Exclusive, SubType.Shared, SubType.Key_Shared]


class ByKey:
    """Key `no` is rejected, key `later` rescheduled until `open` is set, key `bad` fails."""

    def __init__(self) -> None:
        self.open = False
        self.seen: set[FilterContext] = set()

    def filter_entry(self, entry: Entry, context: FilterContext) -> FilterResult:
        self.seen.add(context)
        key = entry.metadata.partition_key
        if key == "bad":
            raise ValueError("defect")
        if key == "later" and not self.open:
            return FilterResult.RESCHEDULE
        return FilterResult.REJECT if key == "no" else FilterResult.ACCEPT


async def sent_with(world: World, sub_type: int, keys: list[str], *filters: ByKey):
    topic = world.topic(entry_filters=filters)
    connection = FakeConnection()
    consumer = await topic.subscribe(
        subscribe_request(
            connection, 1, sub_type=sub_type, initial_position=InitialPosition.Earliest
        )
    )
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n, key=key) for n, key in enumerate(keys)])
    await world.settle()
    return topic, connection


@pytest.mark.parametrize("sub_type", ALL)
async def test_rejected_entries_are_acknowledged_and_not_sent(world: World, sub_type: int):
    accepting, by_key = ByKey(), ByKey()
    by_key.open = accepting.open = True
    topic, connection = await sent_with(
        world, sub_type, ["no", "a", "no", "b", "no"], accepting, by_key
    )
    assert connection.entries() == [1, 3]
    subscription = topic.subscriptions["sub"]
    assert subscription.backlog_entries() == 2
    assert by_key.seen == {FilterContext(topic.name, "sub")}
    stats = subscription.stats()
    assert (stats.filter_processed_msg_count, stats.filter_accepted_msg_count) == (5, 2)
    assert (stats.filter_rejected_msg_count, stats.filter_rescheduled_msg_count) == (3, 0)


@pytest.mark.parametrize("sub_type", [SubType.Shared, SubType.Key_Shared])
async def test_rescheduled_entries_come_later(world: World, sub_type: int, autojump_clock):
    by_key = ByKey()
    topic, connection = await sent_with(world, sub_type, ["later", "a", "later", "no"], by_key)
    assert connection.entries() == [1]
    world.now_ms += 1100
    await trio.sleep(1.1)
    assert connection.entries() == [1], "tried, and rescheduled again"
    assert topic.subscriptions["sub"].stats().filter_rescheduled_msg_count == 4
    by_key.open = True
    world.now_ms += 1100
    await trio.sleep(1.1)
    assert sorted(connection.entries()) == [0, 1, 2]


async def test_ordered_subscriptions_reschedule_nothing(world: World):
    _, connection = await sent_with(world, SubType.Exclusive, ["later", "no", "a"], ByKey())
    assert connection.entries() == [0, 2]


async def test_no_entry_passes_a_failing_filter(world: World):
    _, connection = await sent_with(world, SubType.Shared, ["a", "bad"], ByKey())
    assert connection.entries() == []
    assert connection.dropped_consumers == [1]


def test_filters_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    here = metadata.EntryPoint("mine", f"{__name__}:ByKey", entry_filters.GROUP)
    broken = metadata.EntryPoint("broken", f"{__name__}:Missing", entry_filters.GROUP)
    known = {"mine": [here], "broken": [broken]}
    monkeypatch.setattr(entry_filters, "entry_points", lambda group, name: known.get(name, []))
    assert load_filters("") == ()
    assert [type(each) for each in load_filters(" mine ,mine")] == [ByKey, ByKey]
    with pytest.raises(ConfigError, match="'nope' is not installed"):
        load_filters("mine,nope")
    with pytest.raises(ConfigError, match="'broken' can't be loaded"):
        load_filters("broken")

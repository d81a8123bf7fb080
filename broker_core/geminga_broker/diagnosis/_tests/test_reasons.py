"""Causes that no client can produce at will: with a log and connections that fail on demand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.diagnosis.answer import worst_first
from geminga_broker.diagnosis.finding import Finding, Level
from geminga_broker.diagnosis.look import explain
from geminga_broker.diagnosis.reasons import SLOW_READ_S, why
from geminga_broker.diagnosis.view import ConsumerView, Draining, SubscriptionView, TopicView
from geminga_broker.log.api import Entry, LogReadFailed
from geminga_broker.policies.quota import QuotaType
from geminga_broker.subscription.entry_filters import FilterContext, FilterResult
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.persistent import PersistentTopic


class Decides:
    """A filter with one answer."""

    def __init__(self, result: FilterResult) -> None:
        self.result = result

    def filter_entry(self, _entry: Entry, _context: FilterContext) -> FilterResult:
        return self.result


async def topic_with(
    world: World,
    permits: int = 100,
    entries: int = 3,
    sub_type: int = SubType.Shared,
    **more: object,
) -> tuple[PersistentTopic, FakeConnection]:
    topic = world.topic(**more)
    connection = FakeConnection()
    request = subscribe_request(
        connection, 1, sub_type=SubType.Shared, initial_position=InitialPosition.Earliest
    )
    consumer = await topic.subscribe(request)
    if permits:
        consumer.flow(permits)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(number) for number in range(entries)])
    await world.settle()
    return topic, connection


def codes(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.code, each.level.value) for each in findings]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("bookie b1:3181 is gone\x1b[2J", "Check that the bookies"),
        ("EntryLost: entry 5:7: there is no other copy", "topics skip -n 1"),
    ],
)
@pytest.mark.slow
async def test_reads_that_fail(world: World, text: str, advice: str) -> None:
    topic, connection = await topic_with(world, permits=0)
    subscription = topic.subscription("sub")

    async def broken(**_limits: object) -> list[Entry]:
        await trio.lowlevel.checkpoint()
        raise LogReadFailed(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscription.cursor, "read", broken)
        subscription.consumers[0].flow(10)
        await world.settle()
        first = explain(topic, "sub")[0]
        assert (first.code, first.level) == ("READ_FAILS", Level.FAIL)
        assert text.replace("\x1b", "?") + "." in first.sentence
        assert advice in first.advice
    with trio.fail_after(60):  # it is read again after a second
        while explain(topic, "sub")[0].code != "WAITS_FOR_ACKS":  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert connection.entries() == [0, 1, 2]


@pytest.mark.slow
async def test_a_read_that_takes_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, _ = await topic_with(world, permits=0)
    subscription = topic.subscription("sub")

    async def slow(**_limits: object) -> list[Entry]:
        await trio.sleep_forever()

    monkeypatch.setattr(subscription.cursor, "read", slow)
    subscription.consumers[0].flow(10)
    await world.settle()
    assert "READING" not in [code for code, _ in codes(explain(topic, "sub"))]
    await trio.sleep(SLOW_READ_S)
    assert ("READING", "warn") in codes(explain(topic, "sub"))


async def test_a_connection_that_takes_nothing(world: World) -> None:
    topic, connection = await topic_with(world, entries=0)
    connection.set_writable(False)
    producer = next(iter(topic.producers.values()))
    producer.publish([item(9)])
    await world.settle()
    assert codes(explain(topic, "sub"))[0] == ("CONNECTION_FULL", "fail")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (FilterResult.REJECT, "rejected 3 and put off 0"),
        (FilterResult.RESCHEDULE, "rejected 0 and"),
    ],
)
async def test_filters(world: World, result: FilterResult, words: str) -> None:
    topic, _ = await topic_with(world, entry_filters=(Decides(result),))
    found = next(each for each in explain(topic, "sub") if each.code == "FILTERED")
    assert found.level is Level.FAIL
    assert f"Decides {words}" in found.sentence


async def test_delayed_by_the_clock_of_the_broker(world: World) -> None:
    topic, _ = await topic_with(world, entries=0)
    producer = next(iter(topic.producers.values()))
    producer.publish([item(n, deliver_at=world.now_ms + 60_000) for n in range(5)])
    await world.settle()
    found = explain(topic, "sub")
    assert codes(found)[0] == ("DELAYED", "fail")
    assert "5 messages are delayed by the producer; the first is due in 60 s" in found[0].sentence


def _fence(topic: PersistentTopic) -> None:
    topic.fence()


def _move(topic: PersistentTopic) -> None:
    topic.moving = Moving()


def _delete(topic: PersistentTopic) -> None:
    topic.subscription("sub").fence()


def _evict(topic: PersistentTopic) -> None:
    topic.evictions[QuotaType.SIZE] = 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_fence, ("TOPIC_FENCED", "fail")),
        (_move, ("TOPIC_MOVES", "fail")),
        (_delete, ("SUBSCRIPTION_FENCED", "fail")),
        (_evict, ("QUOTA_EVICTS", "warn")),
    ],
)
async def test_states_of_the_topic(
    world: World, change: Callable[[PersistentTopic], None], code: tuple[str, str]
) -> None:
    topic, _ = await topic_with(world)
    change(topic)
    assert code in codes(explain(topic, "sub"))


async def test_a_cursor_that_is_being_moved(world: World, nursery: trio.Nursery) -> None:
    topic, _ = await topic_with(world)
    subscription = topic.subscription("sub")
    async with subscription.pump.lock:
        nursery.start_soon(topic.reset, "sub", topic.log.last_position)
        await world.settle()
        assert codes(explain(topic, "sub")) == [("CURSOR_MOVES", "fail")]


def view(**more: object) -> SubscriptionView:
    topic = TopicView("persistent://public/default/t", producers=1)
    defaults: dict[str, object] = {
        "topic": topic, "name": "s", "kind": "Shared", "backlog": 5, "has_more": True,
        "consumers": (ConsumerView("c", sent=1),),
    }  # fmt: skip
    return SubscriptionView(**{**defaults, **more})


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"running": False}, ("DISPATCH_STOPPED", "fail")),
        ({"chunks_full": True}, ("CHUNKS_FULL", "fail")),
        ({"draining": (Draining("old", 1, 2),)}, ("DRAINING_HASHES", "warn")),
        ({"delayed": 1}, ("DELAYED", "warn")),
        ({"delayed_full": True}, ("DELAYED_FULL", "fail")),
        ({"topic": TopicView("t", no_ledger=True)}, ("NO_LEDGER", "warn")),
        ({"topic": TopicView("t", no_ledger=True), "backlog": 0}, ("NO_LEDGER", "fail")),
        ({"name": "__compaction", "consumers": ()}, ("COMPACTION", "ok")),
        ({}, ("SERVED", "ok")),
    ],
)
def test_what_a_view_says(more: dict[str, object], code: tuple[str, str]) -> None:
    assert codes(why(view(**more)))[0] == code


def test_a_consumer_that_acknowledged_lately_is_at_work() -> None:
    """All that was read is with it, as with every consumer that is quick enough."""
    holder = ConsumerView("a", sent=9, unacked=3, acked_ago_s=60.0)
    waits = codes(why(view(consumers=(holder,), backlog=3, has_more=False)))
    assert waits == [("WAITS_FOR_ACKS", "fail")]
    at_work = holder._replace(acked_ago_s=0.1)
    assert codes(why(view(consumers=(at_work,), backlog=3, has_more=False))) == [("SERVED", "ok")]


def test_the_active_consumer_is_known_though_names_are_alike() -> None:
    one = ConsumerView("app", active=True, permits=0)
    other = ConsumerView("app")
    for consumers in ((one, other), (other, one)):
        found = why(view(kind="Failover", consumers=consumers))
        assert codes(found) == [("NO_PERMITS", "fail"), ("NOT_ACTIVE", "warn")]


def test_a_part_that_gets_nothing_is_a_warning_beside_that_the_rest_is_served() -> None:
    consumers = (ConsumerView("a", sent=1), ConsumerView("b", permits=0))
    found = why(view(consumers=consumers))
    assert codes(found) == [("NO_PERMITS", "warn"), ("SERVED", "ok")]
    assert found[0].sentence == "No permits are left: consumer b asked for no more messages."


def test_names_are_few_short_and_printable() -> None:
    consumers = tuple(ConsumerView(f"\x1b]{n}" + "n" * 100, permits=0) for n in range(2000))
    sentence = why(view(consumers=consumers))[0].sentence
    assert len(sentence) < 400
    assert sentence.isprintable()
    assert "1997 more" in sentence
    assert why(view(consumers=(ConsumerView("{0}{who}", permits=0),)))


def test_the_worst_comes_first() -> None:
    levels = [{"level": level} for level in ("ok", "odd", "warn", "fail")]
    assert [each["level"] for each in worst_first(levels)] == ["fail", "warn", "ok", "odd"]


def test_a_terminated_topic_is_told_without_consumers() -> None:
    ended = TopicView("persistent://public/default/t", state="terminated")
    assert codes(why(view(topic=ended, consumers=(), backlog=0))) == [("TERMINATED", "ok")]
    found = why(view(topic=ended, consumers=(), backlog=3))
    assert codes(found) == [("NO_CONSUMERS", "fail"), ("TERMINATED", "ok")]
    assert "after the backlog" in found[1].sentence
    assert ("TERMINATED", "ok") in codes(why(view(topic=ended)))
    full = (ConsumerView("a", permits=0, unacked=3),)
    found = why(view(topic=ended, consumers=full, backlog=0))
    assert codes(found) == [("TERMINATED", "ok"), ("FINE", "ok")]


def test_new_messages_are_promised_only_if_a_consumer_takes_them() -> None:
    busy = TopicView("persistent://public/default/t", producers=1)
    ready, full = ConsumerView("a"), ConsumerView("b", permits=0)
    assert (
        "are sent at once" in why(view(topic=busy, consumers=(ready, full), backlog=0))[-1].sentence
    )
    found = why(view(topic=busy, consumers=(full,), backlog=0))
    assert codes(found) == [("NO_PERMITS", "warn"), ("FINE", "ok")]
    assert found[-1].sentence.endswith("new messages wait for a consumer.")

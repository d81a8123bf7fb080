"""Sweeps over all topics leave the loop to others (OP-05, BR-04, BR-05, BR-21)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import trio

from geminga_broker._tests.wire import open_broker
from geminga_broker.cluster import inactivity
from geminga_broker.config import BrokerConfig
from geminga_broker.log import cursors as log_cursors
from geminga_broker.log.api import Ack
from geminga_broker.log.cursor_writer import CursorWriter
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.metrics.scrape import scrape
from geminga_broker.policies import backlog_quota_manager as backlog_keeping
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import StatsSteps
from geminga_protocol.ids import EARLIEST
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import TURN_UNITS

TOPICS = 3 * TURN_UNITS


class Steps(trio.abc.Instrument):
    """Counts calls by the step of the loop's tasks in which they are made."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self._step = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step += 1

    def counting(self, function: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            self.calls[self._step] += 1
            return function(*args)

        return counted


@contextmanager
def counted_steps() -> Iterator[Steps]:
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(steps)


def config_with(*, delete_inactive: bool) -> BrokerConfig:
    config = BrokerConfig()
    return replace(config, topics=replace(config.topics, delete_inactive=delete_inactive))


async def load_topics(service: BrokerService) -> list[PersistentTopic]:
    found = []
    for number in range(TOPICS):
        name = TopicName.parse(f"persistent://public/default/t{number}")
        topic = await service.topics.get(name, create=True)
        assert isinstance(topic, PersistentTopic)
        found.append(topic)
    return found


async def test_metrics_are_made_in_turns(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_broker() as broker:
        topics = await load_topics(broker.service)
        with counted_steps() as steps:
            made: Callable[[PersistentTopic], StatsSteps] = PersistentTopic.stats_steps
            monkeypatch.setattr(PersistentTopic, "stats_steps", steps.counting(made))
            text = (await scrape(broker.service, version="")).render()
        assert text.count("pulsar_producers_count{") == len(topics)
        assert sum(steps.calls.values()) == TOPICS
        assert max(steps.calls.values()) <= TURN_UNITS


@pytest.mark.parametrize(
    ("module", "name", "period_s"),
    [
        (backlog_keeping, "size_exceeded", 60),
        (inactivity, "may_delete", 60),
        (TopicLog, "roll_if_due", 60),
        (TopicLog, "trim_if_due", 120),
    ],
)
async def test_timers_go_over_topics_in_turns(
    module: object,
    name: str,
    period_s: float,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    delete_inactive = module is inactivity
    async with open_broker(config_with(delete_inactive=delete_inactive)) as broker:
        topics = await load_topics(broker.service)
        with counted_steps() as steps:
            monkeypatch.setattr(module, name, steps.counting(getattr(module, name)))
            await trio.sleep(period_s + 1)
        assert len(topics) <= sum(steps.calls.values())
        assert max(steps.calls.values()) <= TURN_UNITS


async def test_cursors_are_persisted_in_turns(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(log_cursors, "FLUSH_INTERVAL_MIN_S", 0.5)
    async with open_broker(config_with(delete_inactive=False)) as broker:
        topics = await load_topics(broker.service)
        cursors = []
        for topic in topics:
            topic.log.append([(b"x", 1)], lambda *_: None)
            cursor = await topic.log.open_cursor("s", initial=EARLIEST)
            cursors.append(cursor)
        await trio.sleep(5)
        for topic, cursor in zip(topics, cursors, strict=True):
            cursor.ack([Ack(topic.log.last_position)])
        with counted_steps() as steps:
            counting = steps.counting(CursorWriter.flush)
            monkeypatch.setattr(CursorWriter, "flush", counting)
            await trio.sleep(5)
        assert sum(steps.calls.values()) >= TOPICS
        assert max(steps.calls.values()) <= TURN_UNITS


@pytest.mark.parametrize("looks_at", ["has_leftovers", "ledger_ids"])
async def test_trimming_looks_at_many_cursors_in_turns(
    looks_at: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(log_cursors, "CURSORS_A_TURN", 5)
    many = 23
    async with open_broker(config_with(delete_inactive=False)) as broker:
        name = TopicName.parse("persistent://public/default/many")
        topic = await broker.service.topics.get(name, create=True)
        assert isinstance(topic, PersistentTopic)
        assert isinstance(topic.log, TopicLog)
        for number in range(many):
            await topic.create_subscription(f"s{number}", EARLIEST)
        with counted_steps() as steps:
            found = getattr(CursorWriter, looks_at).fget
            monkeypatch.setattr(CursorWriter, looks_at, property(steps.counting(found)))
            topic.log.context.catalog.deleting[1 << 40] = None
            topic.log.trim_if_due()
            await trio.sleep(1)
        assert not topic.log.context.catalog.deleting
        assert sum(steps.calls.values()) >= many
        assert max(steps.calls.values()) <= 5


async def test_of_many_cursors_it_is_not_asked_at_once_whether_there_is_something_to_delete(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(log_cursors, "CURSORS_A_TURN", 5)
    async with open_broker(config_with(delete_inactive=False)) as broker:
        name = TopicName.parse("persistent://public/default/many")
        topic = await broker.service.topics.get(name, create=True)
        assert isinstance(topic, PersistentTopic)
        for number in range(6):
            await topic.create_subscription(f"s{number}", EARLIEST)
        with counted_steps() as steps:
            found = CursorWriter.has_leftovers.fget
            assert found is not None
            monkeypatch.setattr(CursorWriter, "has_leftovers", property(steps.counting(found)))
            await trio.sleep(121)
        assert sum(steps.calls.values()) >= 6
        assert max(steps.calls.values()) <= 5

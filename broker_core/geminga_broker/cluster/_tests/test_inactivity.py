"""When an inactive topic may be deleted (BR-04)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from geminga_broker._tests.wire import open_broker
from geminga_broker.cluster import inactivity
from geminga_broker.config import BrokerConfig
from geminga_broker.log.options import Retention
from geminga_broker.policies.model import Inactivity
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")


async def unused(idle_s: float, **changes: object) -> SimpleNamespace:
    """A topic that was idle for that time."""
    policies = SimpleNamespace(inactivity=Inactivity(True, 100), retention=Retention(0, 0))
    given = {
        "policies": policies,
        "idle": True,
        "idle_since_s": trio.current_time() - idle_s,
        "persistent": True,
        "subscriptions": {},
        **changes,
    }
    return SimpleNamespace(**given)


async def test_a_topic_stays_as_long_as_its_retention_keeps_messages() -> None:
    """With the topic they would go."""
    for time_s, idle_s, may in ((0, 101, True), (300, 101, False), (300, 301, True)):
        topic = await unused(idle_s)
        topic.policies.retention = Retention(time_s, 0)
        assert inactivity.may_delete(topic) == may
    topic = await unused(10_000)
    topic.policies.retention = Retention(-1, -1)
    assert not inactivity.may_delete(topic)
    topic.persistent = False  # it keeps nothing
    assert inactivity.may_delete(topic)


async def test_use_and_subscriptions_keep_a_topic() -> None:
    assert not inactivity.may_delete(await unused(99))
    assert not inactivity.may_delete(await unused(1000, idle=False))
    waiting = SimpleNamespace(backlog_entries=lambda: 1)
    done = SimpleNamespace(backlog_entries=lambda: 0)
    for mode, subscription, may in (
        ("delete_when_no_subscriptions", done, False),
        ("delete_when_subscriptions_caught_up", waiting, False),
        ("delete_when_subscriptions_caught_up", done, True),
    ):
        topic = await unused(1000, subscriptions={"s": subscription})
        topic.policies.inactivity = Inactivity(True, 100, mode)
        assert inactivity.may_delete(topic) == may


async def test_a_topic_that_is_used_again_in_the_last_moment_stays(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A client may come while the deletion waits for other work on the topic."""
    config = BrokerConfig()
    topics = replace(config.topics, delete_inactive=True, delete_inactive_period_s=10)
    answers = [True, False]
    async with open_broker(replace(config, topics=topics)) as broker:
        await broker.service.topics.get(NAME, create=True)
        monkeypatch.setattr(
            inactivity, "may_delete", lambda _topic: bool(answers) and answers.pop(0)
        )
        await trio.sleep(35)
        assert answers == []
        assert str(NAME) in broker.service.topics.loaded


@pytest.mark.parametrize(("namespace", "told"), [("public/default", 1), ("pulsar/h:8080", 0)])
def test_the_loss_of_messages_is_told_but_not_of_health_checks(
    namespace: str, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    found = SimpleNamespace(entries=2, size_bytes=9)
    topic = SimpleNamespace(
        name=f"persistent://{namespace}/healthcheck",
        log=SimpleNamespace(statistics=lambda: found),
    )
    inactivity._warn_of_loss(cast(PersistentTopic, topic))
    assert len(caplog.messages) == told

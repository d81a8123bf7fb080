"""Topics over a log in memory; the fixture `world` makes one (broker_core/conftest.py)."""

from __future__ import annotations

import trio
import trio.testing

from geminga_broker._tests.fake_log import FakeLog
from geminga_broker.policies.model import TopicOptions
from geminga_broker.topic.api import TopicEnvironment
from geminga_broker.topic.nonpersistent import NonPersistentTopic
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName


class World:
    """Makes topics with one clock; `settle` lets pumps do all they can."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.now_ms = 1_000_000
        self.environment = TopicEnvironment(nursery, lambda: self.now_ms)
        self.log = FakeLog()

    def topic(
        self, name: str = "persistent://public/default/t", **options: object
    ) -> PersistentTopic:
        made = TopicOptions(**options)
        return PersistentTopic(TopicName.parse(name), self.log, self.environment, made)

    def passing(
        self, name: str = "non-persistent://public/default/t", **options: object
    ) -> NonPersistentTopic:
        made = TopicOptions(**options)
        return NonPersistentTopic(TopicName.parse(name), self.environment, made)

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

"""A topic that another broker has taken is closed once, whoever finds out (CL-04, decision 36)."""

from __future__ import annotations

from typing import cast

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker._tests.wire import Type, open_broker
from geminga_broker.log.api import LogFenced
from geminga_broker.log.catalog import LogCatalog
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/taken")


async def test_a_topic_with_consumers_alone_closes_them_once(autojump_clock: MockClock) -> None:
    """They look up anew; nothing else would tell them."""
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.subscribe(str(NAME))
        topics = broker.service.topics
        topic = cast(PersistentTopic, topics.loaded[str(NAME)])
        log = cast(TopicLog, topic.log)
        other = LogCatalog(log.context.catalog.store, log.name)
        await other.load()
        await other.claim()
        with pytest.raises(LogFenced):
            await log.claim.verify()
        log.context.fence("found out a second time")
        assert (await client.expect(Type.CLOSE_CONSUMER)).command.close_consumer.consumer_id == 1
        await wait_all_tasks_blocked()
        assert str(NAME) not in topics.loaded
        await client.subscribe(str(NAME))
        assert topics.loaded[str(NAME)] is not topic

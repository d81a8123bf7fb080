"""Compaction over REST, its policies and metrics, in a whole broker."""

from __future__ import annotations

import re

import trio
from trio.testing import MockClock

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_schema_routes import Admin
from geminga_broker.admin.app import create_app
from geminga_broker.compaction._tests.world import append, read_all, single
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_broker.metrics.scrape import scrape
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName

T = TopicName.parse("persistent://public/default/t")
P = "persistent://public/default/p"
PATH = "/admin/v2/persistent/public/default"
SPACE = "/admin/v2/namespaces/public/default"


async def topic_of(service: BrokerService, name: TopicName = T) -> PersistentTopic:
    topic = await service.topics.get(name, create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def test_manual_compaction() -> None:
    async with open_broker() as broker:
        rest = Admin(create_app(broker.service))
        missing = 404, {"reason": f"Topic {T} not found"}
        assert await rest.ask("GET", f"{PATH}/t/compaction") == missing
        assert await rest.ask("PUT", f"{PATH}/t/compaction") == missing
        nowhere = "/admin/v2/persistent/public/nowhere/t/compaction"
        assert await rest.ask("PUT", nowhere) == (404, {"reason": "Namespace not found"})
        topic = await topic_of(broker.service)
        never = 200, {"status": "NOT_RUN", "lastError": ""}
        assert await rest.ask("GET", f"{PATH}/t/compaction") == never
        await append(topic, [single("a", b"1"), single("a", b"2")])
        topic.compaction.trigger()
        running = 409, {"reason": "Compaction already in progress"}
        assert await rest.ask("PUT", f"{PATH}/t/compaction") == running
        await topic.compaction.wait()
        done = 200, {"status": "SUCCESS", "lastError": ""}
        assert await rest.ask("GET", f"{PATH}/t/compaction") == done
        assert await rest.ask("GET", f"{PATH}/t/subscriptions") == (200, [COMPACTION])
        found = await rest.ask("GET", f"{PATH}/t/internalStats")
        assert isinstance(found, tuple)
        named = topic.log.cursors[COMPACTION].properties["CompactedTopicLedger"]
        ledger = found[1]["compactedLedger"]
        assert (ledger["ledgerId"], ledger["entries"]) == (named, 1)
        text = (await scrape(broker.service, version="4")).render()
        metrics = dict(re.findall(r"^pulsar_compaction_(\w+)\{.*\} (.*)$", text, re.MULTILINE))
        assert metrics["removed_event_count"] == metrics["succeed_count"] == "1"
        assert (metrics["failed_count"], metrics["compacted_entries_count"]) == ("0", "1")


async def test_a_partitioned_topic() -> None:
    async with open_broker() as broker:
        rest = Admin(create_app(broker.service))
        await rest.ask("PUT", f"{PATH}/p/partitions", 2)
        parts = [
            await topic_of(broker.service, TopicName.parse(f"{P}-partition-{n}")) for n in range(2)
        ]
        for part in parts:
            await append(part, [single("a", b"1"), single("a", b"2")])
        parts[0].compaction.trigger()
        # One that runs doesn't keep the others from being begun.
        answer = await rest.ask("PUT", f"{PATH}/p/compaction")
        assert answer == (409, {"reason": "Compaction already in progress"})
        for part in parts:
            await part.compaction.wait()
            assert part.compaction.outcome.successes == 1
        assert await rest.ask("PUT", f"{PATH}/p/compaction") == (204, None)


async def test_thresholds(autojump_clock: MockClock) -> None:
    """The nearest one holds, and each monitor's interval topics are looked at."""
    async with open_broker() as broker:
        rest = Admin(create_app(broker.service))
        topic = await topic_of(broker.service)
        assert topic.policies.compaction.threshold_bytes == 0
        assert await rest.ask("PUT", f"{SPACE}/compactionThreshold", 5000) == (204, None)
        assert topic.policies.compaction.threshold_bytes == 5000
        assert COMPACTION in topic.subscriptions
        assert await rest.ask("POST", f"{PATH}/t/compactionThreshold", 100) == (204, None)
        assert topic.policies.compaction.threshold_bytes == 100
        await append(topic, [single("a", b"1" * 100), single("a", b"2")])
        monitor_s = broker.service.config.policies.compaction_monitor_s
        await pass_time(topic, monitor_s)
        assert topic.compaction.outcome.successes == 1
        assert await read_all(topic) == [("a", b"2")]
        assert await rest.ask("DELETE", f"{PATH}/t/compactionThreshold") == (204, None)
        assert topic.policies.compaction.threshold_bytes == 5000
        assert await rest.ask("DELETE", f"{SPACE}/compactionThreshold") == (204, None)
        assert topic.policies.compaction.threshold_bytes == 0


async def pass_time(topic: PersistentTopic, seconds: float) -> None:
    """Let the time pass, and a run that began end."""
    await trio.sleep(seconds + 1)
    await topic.compaction.wait()

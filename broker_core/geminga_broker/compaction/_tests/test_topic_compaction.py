"""A topic is compacted, and read: by readers, durable subscriptions, across restarts."""

from __future__ import annotations

from trio.testing import MockClock

from geminga_broker.compaction._tests.world import (
    append,
    compact,
    open_topic,
    read_all,
    single,
)
from geminga_broker.compaction.outcome import Status
from geminga_broker.log._tests.world import World


async def test_a_reader_gets_the_last_message_of_each_key(autojump_clock: MockClock) -> None:
    async with open_topic(World()) as topic:
        await append(topic, [single("a", b"1"), single("b", b"2"), single("a", b"3")])
        await append(topic, [single("c", b"4"), single("c", b""), single(None, b"5")])
        await compact(topic)
        assert topic.compaction.outcome.status is Status.SUCCESS
        await append(topic, [single("b", b"6")])
        assert await read_all(topic) == [("b", b"2"), ("a", b"3"), ("b", b"6")]

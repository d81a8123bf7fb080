"""Random publishes, compactions, roll-overs and restarts: readers agree with a simple oracle."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from geminga_broker.compaction._tests.world import (
    KeyValue,
    append,
    batch,
    compact,
    open_topic,
    read_all,
    single,
)
from geminga_broker.log._tests.world import World
from geminga_broker.policies.model import CompactionPolicy
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType

KEYS = st.sampled_from(["a", "b", "c", "d", None])
MESSAGES = st.tuples(KEYS, st.booleans())
"""Key, and whether it removes it."""

CODECS = st.sampled_from([CompressionType.NONE, CompressionType.LZ4, CompressionType.ZLIB])
PUBLISH = st.tuples(
    st.just("publish"), st.lists(MESSAGES, min_size=1, max_size=5), st.booleans(), CODECS
)
STEPS = st.lists(
    st.one_of(PUBLISH, PUBLISH, st.sampled_from(["compact", "roll", "restart", "kill", "read"])),
    max_size=25,
)


@dataclass
class Oracle:
    """Every message that was published, and up to where it was compacted."""

    retain_null_key: bool
    messages: list[tuple[Position, str | None, bytes]] = field(default_factory=list)
    compacted: list[tuple[Position, str | None, bytes]] = field(default_factory=list)
    horizon: Position | None = None

    def compact(self) -> None:
        """Keep the last of each key of all that there is."""
        latest: dict[str, int] = {}
        seen = self.view()
        for index, (_, key, _) in enumerate(seen):
            if key is not None:
                latest[key] = index
        self.compacted = [
            message
            for index, message in enumerate(seen)
            if (message[1] is None and self.retain_null_key)
            or (message[1] is not None and latest[message[1]] == index and message[2])
        ]
        if self.messages:
            self.horizon = self.messages[-1][0]

    def view(self) -> list[tuple[Position, str | None, bytes]]:
        """All messages, read from the beginning."""
        behind = [m for m in self.messages if self.horizon is None or m[0] > self.horizon]
        return self.compacted + behind

    def read(self, start: Position) -> list[KeyValue]:
        """Messages read from an entry on."""
        return [(key, value) for at, key, value in self.view() if at >= start]


class Play:
    """Carries out steps beside the oracle."""

    def __init__(self, policy: CompactionPolicy) -> None:
        self.oracle = Oracle(policy.retain_null_key)
        self._policy = policy
        self._world = World()
        self._count = 0

    @asynccontextmanager
    async def _opened(self, crash: bool) -> AsyncIterator[PersistentTopic]:
        async with open_topic(self._world, self._policy, crash=crash) as topic:
            # A cursor always retains the log, so that readers miss nothing by trimming.
            if "holds" not in topic.subscriptions:
                await topic.create_subscription("holds", Position(-1, -1))
            yield topic

    async def run(self, steps: Sequence[object]) -> None:
        left = list(steps)
        while left:
            end = next((i for i, step in enumerate(left) if step in ("restart", "kill")), len(left))
            crash = end < len(left) and left[end] == "kill"
            async with self._opened(crash) as topic:
                for step in left[:end]:
                    await self._step(topic, step)
                await self._check(topic)
            left = left[end + 1 :]
        async with self._opened(crash=False) as topic:
            await self._check(topic)

    async def _step(self, topic: PersistentTopic, step: object) -> None:
        if step == "compact":
            await compact(topic)
            assert topic.compaction.outcome.last_error == ""
            self.oracle.compact()
        elif step == "roll":
            await topic.skip("holds", None)
            await topic.log.roll()
            await topic.log.trim()
            self._forget_trimmed(topic)
        elif step == "read":
            await self._check(topic)
        else:
            assert isinstance(step, tuple)
            await self._publish(topic, *step[1:])

    async def _publish(self, topic, messages, batched: bool, codec) -> None:
        made: list[KeyValue] = []
        for key, removes in messages:
            self._count += 1
            made.append((key, b"" if removes else b"value %d" % self._count))
        if batched:
            [position] = await append(topic, [batch(made, compression=codec)])
            positions = [position] * len(made)
        else:
            positions = await append(topic, [single(*each, compression=codec) for each in made])
        self.oracle.messages += [
            (position, *each) for position, each in zip(positions, made, strict=True)
        ]

    def _forget_trimmed(self, topic: PersistentTopic) -> None:
        """Trimmed entries are gone, unless they were compacted."""
        ledgers = {each.ledger_id for each in topic.log.statistics().ledgers}
        behind = self.oracle.messages[-1:]
        self.oracle.messages = [m for m in self.oracle.messages if m[0].ledger_id in ledgers]
        if self.oracle.horizon is None:
            return
        missing = [m for m in behind if m not in self.oracle.messages]
        assert all(m[0] <= self.oracle.horizon for m in missing), "trimmed, and not compacted"

    async def _check(self, topic: PersistentTopic) -> None:
        assert await read_all(topic) == self.oracle.read(Position(-1, -1))
        for at, _, _ in self.oracle.view()[::3]:
            start = await read_all(topic, start=at)
            assert start == self.oracle.read(at)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_readers_see_what_the_oracle_says(steps: list[object], retain_null_key: bool) -> None:
    play = Play(CompactionPolicy(retain_null_key=retain_null_key))
    trio.run(play.run, steps, clock=MockClock(autojump_threshold=0))

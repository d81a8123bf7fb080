"""Topics of bundles that come and go while they are loaded, and of very large ones."""

from __future__ import annotations

from typing import cast

import trio
import trio.testing

from geminga_broker.cluster._tests.test_loader import A, gate_of, get_into, loader
from geminga_broker.cluster.loader import FENCES_A_TURN
from geminga_broker.topic.topic import Topic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName


async def test_a_bundle_that_is_lost_and_taken_again_during_a_load() -> None:
    """Another broker may have had the topic in between: what the load has claimed counts no more,
    so that it is closed and loaded anew.
    """
    async with loader() as (topics, logs), trio.open_nursery() as nursery:
        found: list[object] = []
        nursery.start_soon(get_into, topics, A, found, True)
        await trio.testing.wait_all_tasks_blocked()
        gate_of(topics).taken += 1
        logs.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert found == [ServerError.ServiceNotReady]
        assert topics.topics == {}
        assert await topics.get(A, create=True) is topics.topics[str(A)]


async def test_others_have_their_turns_while_a_large_bundle_is_fenced() -> None:
    class Fenced:
        async def close(self) -> None:
            """Nothing to close."""

        def fence(self) -> None:
            since_turn.append(1)

    since_turn: list[int] = []
    most = 0
    async with loader() as (topics, _), trio.open_nursery() as nursery:
        names = [TopicName.parse(f"t{number}") for number in range(20 * FENCES_A_TURN)]
        for name in names:
            topics.topics[str(name)] = cast(Topic, Fenced())
            topics._bundles.add(name)
        bundle = await gate_of(topics).admit(names[0])
        ours = len(topics.loaded_of(bundle))
        assert ours > 2 * FENCES_A_TURN

        async def take_turns() -> None:
            nonlocal most, total
            while True:
                most = max(most, len(since_turn))
                total += len(since_turn)
                since_turn.clear()
                await trio.lowlevel.checkpoint()

        total = 0
        nursery.start_soon(take_turns)
        await topics.fence_bundle(bundle)
        assert total + len(since_turn) == ours
        assert 0 < most <= 2 * FENCES_A_TURN
        topics.topics.clear()
        nursery.cancel_scope.cancel()

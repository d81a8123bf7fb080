"""Bundles of many topics: other tasks have their turns while they are looked through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
import trio

from geminga_broker.admin.bundle_rules import _largest
from geminga_broker.admin.namespaces.bundles import _loads_of
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.ownership.bundle import NAMES_A_TURN, BundleId
from geminga_broker.service import BrokerService
from geminga_runtime.metadata.memory import MemoryMetadataStore

SPACE = "public/default"
TOPICS = 6 * NAMES_A_TURN


async def large(service: BrokerService) -> None:
    found = await _largest(service, SPACE)
    assert found is not None


async def loads(service: BrokerService) -> None:
    bundle = BundleId(SPACE, "0x00000000_0xffffffff")
    found = await _loads_of(service, bundle)
    assert len(found) == TOPICS


@pytest.mark.parametrize(("look", "pauses"), [(large, 5), (loads, TOPICS // 8 // 16)])
async def test_it_is_looked_through_in_turns(
    look: Callable[[BrokerService], Awaitable[None]], pauses: int
) -> None:
    names = [f"persistent://{SPACE}/t{number}" for number in range(TOPICS)]

    async def persistent(_namespace: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        return names

    namespaces = Namespaces(MemoryMetadataStore())
    await namespaces.bootstrap("standalone", {}, 4)
    service = SimpleNamespace(
        namespaces=namespaces,
        catalog=SimpleNamespace(persistent=persistent),
        topics=SimpleNamespace(loaded={}),
    )
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await look(cast(BrokerService, service))
        assert turns >= pauses
        nursery.cancel_scope.cancel()

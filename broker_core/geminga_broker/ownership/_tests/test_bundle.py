"""Which topics belong to a bundle."""

from __future__ import annotations

import pytest
import trio

from geminga_broker.ownership.bundle import NAMES_A_TURN, BundleId

HALF = BundleId("public/default", "0x00000000_0x80000000")
REST = BundleId("public/default", "0x80000000_0xffffffff")


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_each_topic_belongs_to_one_bundle_of_its_namespace(domain: str) -> None:
    names = [f"{domain}://public/default/{number}" for number in range(100)]
    others = [
        f"{domain}://{place}/t" for place in ("public/default2", "public", "a/public/default")
    ]
    low, high = await HALF.among([*names, *others]), await REST.among([*names, *others])
    assert low
    assert high
    assert sorted(low + high) == sorted(names)
    assert low == [name for name in names if HALF.covers(name)]
    assert not any(bundle.covers(name) for bundle in (HALF, REST) for name in others)


async def test_other_tasks_run_while_many_are_looked_at() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        found = await HALF.among(f"persistent://public/default/{n}" for n in range(20_000))
        nursery.cancel_scope.cancel()
    assert 9_000 < len(found) < 11_000
    assert turns >= 20_000 // NAMES_A_TURN - 1

"""Processes of auto-recovery."""

from __future__ import annotations

import trio

from geminga_bookie.autorecovery.daemon import run
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_runtime.metadata.api import MetadataError

from .clients import process
from .world import World

OPTIONS = AutoRecoveryOptions(
    bookie_check_interval_s=10,
    ledger_check_interval_s=10,
    grace_period_ms=2000,
    backoff_ms=500,
)


async def keep_repairing(world: World, number: int) -> None:
    """One life after the other, for ever."""
    chance = world.chances.of(f"repairer {number}")
    lives = 0
    while True:
        lives += 1
        name = f"repairer{number}"
        async with process(world, f"{name}.{lives}") as here:
            try:
                await run(here.store, here.directory, OPTIONS, owner=f"{name}:3181")
            except MetadataError as error:
                world.books.log.add(f"{name} ends: {type(error).__name__}")
        await trio.sleep(chance.random())

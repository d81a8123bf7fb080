"""The registrations are read while bookies change their mode."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from geminga_bookie.autorecovery.registrations import read_registered
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.memory import MemoryMetadataStore

BOOKIE = "b0:3181"


class ChangingStore(MemoryMetadataStore):
    """At one of the reads a bookie turns from one mode to the other, as `Registration` does."""

    def __init__(self, at: int, old: str, new: str) -> None:
        super().__init__()
        self._at = at
        self._old = f"{old}/{BOOKIE}"
        self._new = f"{new}/{BOOKIE}"
        self.reads = 0

    async def children(self, path: str) -> Sequence[str]:
        if self.reads == self._at:
            await self.put(self._new, b"")
            await self.delete(self._old)
        self.reads += 1
        return await super().children(path)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("turns", ["read-only", "writable"])
async def test_a_bookie_whose_mode_changes_is_never_missed(at: int, turns: str) -> None:
    """A missed one would be taken for lost, and its entries would be copied elsewhere."""
    modes = [paths.available(), paths.readonly()]
    old, new = modes if turns == "read-only" else modes[::-1]
    store = ChangingStore(at, old, new)
    await store.put(f"{old}/{BOOKIE}", b"")
    assert BOOKIE in await read_registered(store)
    assert store.reads == 3

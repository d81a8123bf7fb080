"""What is counted of a metadata store's calls (spec OP-05; Apache's MetadataStoreStats)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from geminga_runtime.metrics.buckets import Buckets

OWN_STORE = "metadata-store"
"""Apache's name of a cluster's own store."""

STORE_CALLS = ("get", "del", "put")
STORE_BOUNDS_MS = (1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


class StoreTimes:
    """Calls of one store since the start. Loop only."""

    __slots__ = ("failed", "name", "put_bytes", "succeeded")

    def __init__(self, name: str) -> None:
        self.name = name
        self.succeeded = {call: Buckets(STORE_BOUNDS_MS) for call in STORE_CALLS}
        """By call, ms."""
        self.failed = {call: Buckets(STORE_BOUNDS_MS) for call in STORE_CALLS}
        self.put_bytes = 0
        """Of values that were written."""

    def ended(self, call: str, took_s: float, *, failed: bool = False) -> None:
        """A call of STORE_CALLS has ended."""
        (self.failed if failed else self.succeeded)[call].add(took_s * 1000)


@runtime_checkable
class Timed(Protocol):
    """A store whose calls are counted, or one over such stores."""

    times: Sequence[StoreTimes]


def times_of(store: object) -> Sequence[StoreTimes]:
    """What is counted of a store and those beneath it; empty if nothing is."""
    return store.times if isinstance(store, Timed) else ()

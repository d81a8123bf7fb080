"""What a bookie stands on: the operating system, or a simulation of it (docs/decisions/0021)."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_bookie.storage.disk import Disk, OsDisk
from geminga_bookie.storage.key_value import KeyValueStores, RocksStores
from geminga_bookie.workers import ThreadWorkers, Workers


@dataclass(frozen=True, slots=True)
class Host:
    """Files, index stores and blocking work. Made in the event loop."""

    disk: Disk = field(default_factory=OsDisk)
    stores: KeyValueStores = field(default_factory=RocksStores)
    workers: Workers = field(default_factory=ThreadWorkers)

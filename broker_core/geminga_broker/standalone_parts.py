"""What a standalone is made of, in one process or several: options, metadata store, bookie (spec
OP-02).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from geminga_bookie.options import BookieOptions, DiskOptions, GcOptions, JournalOptions
from geminga_broker.config import MIB, BrokerConfig
from geminga_broker.data_dir import (
    BOOKIE_DIRECTORY,
    METADATA_FILE,
    DataDirUnusable,
    missing_metadata,
    prepare_data_dir,
)
from geminga_runtime.metadata.embedded import EmbeddedStore
from geminga_runtime.metadata.integrity.check import StoreDamaged
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.sqlite import SqliteMetadataStore

BOOKIE_ID = "127.0.0.1:3181"

METADATA_LOSS_ADVICE = (
    "put the whole data directory back from one backup, or give up what was changed since with "
    "--accept-metadata-loss"
)
"""Behind a sentence that says that metadata are lost."""

METADATA_DAMAGE_ADVICE = (
    "put the whole data directory back from one backup, or go on with what can be saved with "
    "--accept-metadata-loss, which keeps the damaged file under another name"
)
"""Behind one that says that their file is damaged."""


@dataclass(frozen=True, slots=True)
class StandaloneOptions:
    """Without a data directory all data is in memory only."""

    config: BrokerConfig = field(default_factory=BrokerConfig)
    data_dir: Path | None = None
    brokers: int = 1
    """Broker processes. One is this process itself."""
    first_own_port: int = 0
    """The first of the ports that several brokers have each for itself; 0 takes free ones."""


BUNDLES_A_BROKER = 8
"""Of a namespace, so that its topics are spread evenly, and each broker can give some away."""

BUNDLES_MAX = 128


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def defaults_of(brokers: int) -> dict[str, str]:
    """Settings that are others for so many brokers, unless they are set."""
    if brokers == 1:
        return {"loadBalancerEnabled": "false"}  # as in Apache's standalone.conf
    return {
        "loadBalancerEnabled": "true",
        "defaultNumberOfNamespaceBundles": str(min(BUNDLES_A_BROKER * brokers, BUNDLES_MAX)),
    }


async def open_store(options: StandaloneOptions) -> EmbeddedStore:
    """Raises DataDirUnusable, StoreOpenError."""
    if options.data_dir is None:
        return MemoryMetadataStore()
    prepare_data_dir(options.data_dir)
    if missing := missing_metadata(options.data_dir):
        raise DataDirUnusable(f"{missing}; {METADATA_LOSS_ADVICE}")
    try:
        return await SqliteMetadataStore.open(options.data_dir / METADATA_FILE)
    except StoreDamaged as error:
        raise DataDirUnusable(f"{error}; {METADATA_DAMAGE_ADVICE}") from error


def bookie_options(options: StandaloneOptions) -> BookieOptions:
    """The bookie's part of the configuration."""
    bookie = options.config.bookie
    where = (
        BookieOptions(in_memory=True)
        if options.data_dir is None
        else BookieOptions.in_directory(options.data_dir / BOOKIE_DIRECTORY, BOOKIE_ID)
    )
    return replace(
        where,
        bookie_id=BOOKIE_ID,
        write_cache_bytes=bookie.write_cache_mb * MIB,
        read_cache_bytes=bookie.read_cache_mb * MIB,
        entry_log_bytes_max=bookie.entry_log_bytes,
        journal=JournalOptions(
            sync_data=bookie.journal_sync, segment_bytes=bookie.journal_file_mb * MIB
        ),
        gc=GcOptions(gc_interval_s=bookie.gc_wait_ms / 1000),
        disk=DiskOptions(usage_max=bookie.disk_usage_max, usage_low=bookie.disk_usage_low),
    )

"""The bookie in this process: `async with open_bookie(options) as bookie` (a `BookiePort`)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geminga_bookie.errors import BookkeeperError, DataDirError
from geminga_bookie.host import Host
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.options import (
    AgeCheck,
    BookieOptions,
    IdentityCheck,
    LedgerExists,
    LiveLedgers,
)
from geminga_bookie.port import BookiePort
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.storage.data_dirs import check_metadata_cookie
from geminga_bookie.storage.disk import Disk, OsDisk
from geminga_bookie.storage.startup import Storage, open_storage
from geminga_runtime.metadata.api import MetadataStore

__all__ = ["BookieOptions", "InProcessBookie", "open_bookie"]

logger = logging.getLogger(__name__)

FAILED_RETRY_S = 1.0
"""Interval of retries after a journal failed."""


@asynccontextmanager
async def open_bookie(
    options: BookieOptions,
    live_ledgers: LiveLedgers | None = None,
    *,
    metadata: MetadataStore | None = None,
    age: AgeCheck | None = None,
    adopts_unknown: bool = False,
    disk: Disk | None = None,
    host: Host | None = None,
) -> AsyncIterator[BookiePort]:
    """Recover the directories' data and serve; the exit makes a last checkpoint.

    `live_ledgers` enables garbage collection. `metadata` is the store of the cookie to compare
    with, or with `adopts_unknown` to get it if there is none; `age` compares the age of both.
    `disk` replaces the operating system's files, `host` also its threads and RocksDB. Raises
    DataDirError, and what `age` raises.
    """
    if options.in_memory:
        bookie = MemoryBookie(options.bookie_id)
        async with trio.open_nursery() as nursery:
            if live_ledgers is not None:
                nursery.start_soon(bookie.run_gc, live_ledgers, options.gc.gc_interval_s)
            yield bookie
            nursery.cancel_scope.cancel()
        return

    async def check(instance_id: str, is_new: bool, _in_doubt: bool) -> None:
        assert metadata is not None
        await check_metadata_cookie(
            metadata, options.bookie_id, instance_id, is_new, adopts_unknown=adopts_unknown
        )

    async with open_on_disk(
        options,
        host or Host(disk or OsDisk()),
        live_ledgers=live_ledgers,
        check_identity=None if metadata is None else check,
        age=age,
    ) as on_disk:
        yield on_disk


@asynccontextmanager
async def open_on_disk(
    options: BookieOptions,
    host: Host,
    *,
    live_ledgers: LiveLedgers | None = None,
    ledger_exists: LedgerExists | None = None,
    check_identity: IdentityCheck | None = None,
    age: AgeCheck | None = None,
) -> AsyncIterator[InProcessBookie]:
    """As `open_bookie`. `ledger_exists` is asked about each ledger that `live_ledgers` doesn't name
    before it is collected.
    """
    opened: list[InProcessBookie] = []

    def journal_failed(number: int, error: BookkeeperError) -> None:
        if opened:
            opened[0].journal_failed(number, error)

    try:
        with trio.CancelScope(shield=True):
            storage = await host.workers.run(open_storage, host, options, journal_failed)
    except OSError as error:
        raise DataDirError(f"bookie {options.bookie_id} can't start: {error}") from error
    try:
        if check_identity is not None:
            # Also new: a bookie killed before its cookie was in the metadata store is empty.
            is_new = storage.directories.is_new or storage.is_empty
            in_doubt = storage.table.is_in_limbo
            await check_identity(storage.directories.instance_id, is_new, in_doubt)
        if age is not None:
            await age.check(storage.table.highest_id, _newest_journal(storage))
        if live_ledgers is not None and storage.table.is_in_limbo:
            async for ledger_id in live_ledgers():
                storage.table.doubtful_to = max(storage.table.doubtful_to, ledger_id)
        await _start(options, storage, age)
        bookie = InProcessBookie(options, storage)
        opened.append(bookie)
        if any(report.next_id > 1 for report in storage.reports):
            # Checkpoint recovered entries at once: a process that is killed again and again must
            # not accumulate journals to replay.
            bookie.checkpointer.seal()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bookie.checkpointer.run)
            nursery.start_soon(bookie.reader.run)
            nursery.start_soon(bookie.throttle.run)
            nursery.start_soon(bookie.loader.run)
            nursery.start_soon(bookie.run_health, options.disk.check_interval_s, FAILED_RETRY_S)
            if live_ledgers is not None:
                nursery.start_soon(bookie.gc.run, live_ledgers, ledger_exists)
            try:
                yield bookie
            finally:
                bookie.gc.stop()
                nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await _close(storage, opened)


async def _start(options: BookieOptions, storage: Storage, age: AgeCheck | None) -> None:
    """Not before all is checked: a start that is refused, again and again, must leave no files."""
    try:
        with trio.CancelScope(shield=True):
            await storage.workers.run(storage.start)
    except OSError as error:
        raise DataDirError(f"bookie {options.bookie_id} can't start: {error}") from error
    if age is not None:
        await age.started(_newest_journal(storage) + 1)


def _newest_journal(storage: Storage) -> int:
    """The highest number of a journal of the lives before, by name or mark; 0 if there is none. One
    of those that a start makes has the next number.
    """
    return max(report.next_id for report in storage.reports) - 1


async def _close(storage: Storage, opened: list[InProcessBookie]) -> None:
    """Stop the journals first: their last positions become the marks of the last checkpoint."""

    def stop_journals() -> None:
        for journal in storage.journals:
            journal.stop()

    await storage.workers.run(stop_journals)
    try:
        for bookie in opened:
            await bookie.checkpointer.finish()
    except OSError as error:
        logger.error(
            "the last checkpoint failed, the next start will replay the journal: %s", error
        )
        clean = False
    else:
        # One that was not opened has acknowledged nothing: a refused start leaves no doubt.
        clean = True

    def finish() -> None:
        try:
            for bookie in opened:
                bookie.gc.check_damage()
        finally:
            storage.close(clean)

    await storage.workers.run(finish)

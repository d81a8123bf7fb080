"""Auditor and worker in one process (spec BK-26; Apache's AutoRecoveryMain)."""

from __future__ import annotations

import logging

import trio

from geminga_bookie.autorecovery.auditor import Auditor
from geminga_bookie.autorecovery.election import run_elected, withdraw
from geminga_bookie.autorecovery.options import AutoRecoveryOptions, RackConfig
from geminga_bookie.autorecovery.stats import RecoveryStats
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.autorecovery.worker import ReplicationWorker
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.registered import open_registered_bookies
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.metadata.api import MetadataError, MetadataStore

WITHDRAW_S = 2.0
RETRY_S = 60.0

_log = logging.getLogger(__name__)


async def run_beside(
    store: MetadataStore,
    remote: RemoteOptions,
    options: AutoRecoveryOptions,
    owner: str,
    *,
    racks: RackConfig | None = None,
    stats: RecoveryStats | None = None,
) -> None:
    """As `run`, for ever, in a bookie's process: its errors are logged, and end no bookie."""
    choice = (racks or RackConfig()).choice()
    while True:
        try:
            async with open_registered_bookies(store, remote, choice=choice) as bookies:
                await run(store, bookies, options, owner=owner, stats=stats)
        except* MetadataError as errors:
            _log.error("auto-recovery rests for a minute: %s", errors.exceptions[0])
        await trio.sleep(RETRY_S)


async def run(
    store: MetadataStore,
    bookies: BookieDirectory,
    options: AutoRecoveryOptions,
    *,
    owner: str,
    stats: RecoveryStats | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Work on tasks, and stand for election as auditor, for ever. `owner` is the bookie's id in
    locks and votes. Started once the tree is there. Raises MetadataError if it can't be made, or
    the store was closed.
    """
    tasks = TaskStore(store, owner)
    await tasks.prepare()
    task_status.started()
    worker = ReplicationWorker(store, bookies, tasks, options, stats)

    async def lead() -> None:
        await Auditor(store, bookies, TaskStore(store, owner), options, stats).run()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            nursery.start_soon(run_elected, store, owner, lead)
    finally:
        with trio.move_on_after(WITHDRAW_S, shield=True):
            await withdraw(store, owner)

"""What the commands of the shell do with a cluster (spec BK-11; Apache's BookKeeperAdmin)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

import click
import trio

from geminga_bookie.autorecovery.config import AutoRecoveryConfig
from geminga_bookie.autorecovery.election import current_auditor
from geminga_bookie.autorecovery.fragments import (
    Lack,
    choose_target,
    closed_fragments,
    holders,
    open_ensemble,
    share,
)
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.autorecovery.process import open_cluster
from geminga_bookie.autorecovery.registrations import read_registered
from geminga_bookie.autorecovery.repair import Outcome, Repairer
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import NoSuchLedger
from geminga_protocol.bookkeeper import paths
from geminga_protocol.errors import RemoteProtocolError
from geminga_runtime.metadata.api import MetadataError, MetadataStore, NoNode
from geminga_runtime.settings import ConfigError

POLL_S = 5.0
COOKIES = f"{paths.ROOT}/cookies"


class ToolFailed(Exception):
    """A command can't do what it should; the text is one sentence."""


class Cluster(NamedTuple):
    """What a command works on."""

    store: MetadataStore
    bookies: BookieDirectory
    tasks: TaskStore
    options: AutoRecoveryOptions
    say: Callable[[str], None] = click.echo


class Shown(NamedTuple):
    """What is shown of marked ledgers."""

    missing: str | None = None
    excluded: str | None = None
    with_replicas: bool = False
    with_worker: bool = False
    only_count: bool = False


class Recovery(NamedTuple):
    """Which bookie is replaced where."""

    bookie_id: str
    """Or several, with commas between."""
    ledger_id: int | None = None
    is_query: bool = False
    skip_open: bool = False
    deletes_cookie: bool = False
    """Once no ledger needs the bookie, which must be stopped."""
    is_dry: bool = False
    """Only print which bookies would take whose places."""
    skips_failed: bool = False
    """Ledgers that can't be recovered don't fail the command."""
    bytes_per_s: int | None = None
    """Instead of `replicationRateByBytes`."""

    @property
    def bookie_ids(self) -> frozenset[str]:
        """All of them."""
        return frozenset(each.strip() for each in self.bookie_id.split(",") if each.strip())


async def on_cluster(config: AutoRecoveryConfig, act: Callable[[Cluster], Awaitable[int]]) -> int:
    """Call with the cluster; returns the exit code. Raises ConfigError, MetadataError, ToolFailed,
    not in a group.
    """
    owner = config.daemon.owner()
    refusal: BaseException
    try:
        async with open_cluster(config) as (store, bookies):
            return await act(Cluster(store, bookies, TaskStore(store, owner), config.options))
    except* (ConfigError, MetadataError, ToolFailed) as group:
        refusal = group
        while isinstance(refusal, BaseExceptionGroup):
            refusal = refusal.exceptions[0]
    raise refusal


async def list_bookies(at: Cluster, *, writable: bool, readonly: bool) -> int:
    """Print the registered bookies."""
    registered = await read_registered(at.store)
    if writable:
        at.say("ReadWrite Bookies :")
        for bookie_id in sorted(registered.writable):
            at.say(f"BookieID:{bookie_id}")
    if readonly:
        at.say("Readonly Bookies :")
        for bookie_id in sorted(registered.readonly - registered.writable):
            at.say(f"BookieID:{bookie_id}")
    return 0


async def list_underreplicated(at: Cluster, shown: Shown) -> int:
    """Print the marked ledgers."""
    count = 0
    async with aclosing(at.tasks.tasks()) as found:
        async for ledger_id in found:
            task = await at.tasks.read(ledger_id)
            if task is None:
                continue
            replicas = task.missing.replicas
            if shown.missing is not None and shown.missing not in replicas:
                continue
            if shown.excluded is not None and shown.excluded in replicas:
                continue
            count += 1
            if shown.only_count:
                continue
            at.say(f"{ledger_id}")
            if task.missing.ctime_ms is not None:
                at.say(f"\tCtime : {task.missing.ctime_ms}")
            if shown.with_replicas:
                for bookie_id in replicas:
                    at.say(f"\tMissingReplica : {bookie_id}")
            if shown.with_worker and (worker := await at.tasks.worker_of(ledger_id)) is not None:
                at.say(f"\tReplicationWorkerId : {worker}")
    at.say(f"Under replicated ledger count: {count}")
    return 0


async def who_is_auditor(at: Cluster) -> int:
    """Print the id of the auditor."""
    auditor = await current_auditor(at.store)
    at.say("No auditor elected" if auditor is None else f"Auditor: {auditor}")
    return int(auditor is None)


async def toggle(at: Cluster, wanted: bool | None) -> int:
    """Enable, disable, or print whether it is enabled."""
    if wanted is None:
        is_enabled = await at.tasks.is_enabled()
        at.say(f"Autorecovery is {'enabled' if is_enabled else 'disabled'}.")
    elif await (at.tasks.enable() if wanted else at.tasks.disable()):
        at.say(f"{'Enabled' if wanted else 'Disabled'} autorecovery")
    else:
        at.say(f"Autorecovery already {'enabled' if wanted else 'disabled'}. Doing nothing")
    return 0


async def delay(at: Cluster, delay_s: int | None) -> int:
    """Set the delay, or print it."""
    if delay_s is not None:
        await at.tasks.set_lost_bookie_delay(delay_s)
        at.say(f"Successfully set LostBookieRecoveryDelay value in ZK: {delay_s}")
        return 0
    known = await at.tasks.lost_bookie_delay()
    if known is None:
        raise ToolFailed("the delay is not set: no auditor has ever run")
    at.say(f"LostBookieRecoveryDelay value in ZK: {known}")
    return 0


async def trigger_audit(at: Cluster) -> int:
    """The delay is set again to what it is, which auditors take for a request."""
    if not await at.tasks.is_enabled():
        raise ToolFailed("auto-recovery is disabled: enable it by `autorecovery -e`")
    if await current_auditor(at.store) is None:
        raise ToolFailed("there is no auditor: start `geminga autorecovery`")
    known = await at.tasks.lost_bookie_delay()
    await at.tasks.set_lost_bookie_delay(at.options.lost_bookie_delay_s if known is None else known)
    return 0


async def decommission(at: Cluster, bookie_id: str, poll_s: float = POLL_S) -> int:
    """Wait until no ledger needs the bookie any more, then delete its cookie, unless it was started
    meanwhile: it may have got new ledgers, and could never start again.
    """
    await _require_stopped(at, bookie_id)
    await trigger_audit(at)
    before = math.inf
    while left := await _count_needed(at, bookie_id):
        if left < before:
            at.say(f"{left} ledgers need bookie {bookie_id} still")
            before = left
        await trio.sleep(poll_s)
        await _require_stopped(at, bookie_id)
    await _require_stopped(at, bookie_id)
    if await _delete_cookie(at, bookie_id):
        at.say(f"Cookie of the decommissioned bookie: {bookie_id} is deleted successfully")
    else:
        at.say(f"Bookie {bookie_id} is decommissioned; it had no cookie")
    return 0


async def _delete_cookie(at: Cluster, bookie_id: str) -> bool:
    """Whether there was one."""
    try:
        await at.store.delete(f"{COOKIES}/{bookie_id}")
    except NoNode:
        return False
    return True


async def _require_stopped(at: Cluster, bookie_id: str) -> None:
    if bookie_id in await read_registered(at.store):
        raise ToolFailed(f"bookie {bookie_id} is running: stop it first")


async def _count_needed(at: Cluster, bookie_id: str) -> int:
    """Of how many ledgers the bookie has entries, or may get some. Raises ToolFailed."""
    count = 0

    async def add(_: LedgerMetadata) -> None:
        nonlocal count
        count += 1

    if await _each_needed(at, {bookie_id}, add):
        raise ToolFailed(f"it can't be told whether these ledgers need bookie {bookie_id}")
    return count


async def _each_needed(
    at: Cluster, bookies: Collection[str], act: Callable[[LedgerMetadata], Awaitable[None]]
) -> int:
    """Call with each ledger of which one of the bookies has entries, or may get some; returns how
    many ledgers have no valid metadata.
    """
    invalid = 0
    ledgers = LedgerMetadataStore(at.store)
    async with aclosing(ledgers.ids()) as ids:
        async for ledger_id in ids:
            try:
                metadata = (await ledgers.read(ledger_id)).metadata
            except NoSuchLedger:
                continue
            except RemoteProtocolError as error:
                at.say(f"ledger {ledger_id} has no valid metadata: {error}")
                invalid += 1
                continue
            if not holders(metadata).isdisjoint(bookies):
                await act(metadata)
    return invalid


async def recover(at: Cluster, wanted: Recovery) -> int:
    """Replace bookies in ledgers. Each ledger is marked first: what a recovery that is killed
    leaves is a task for the workers. Raises ToolFailed.
    """
    lost = wanted.bookie_ids
    if not lost:
        raise ToolFailed("no bookie is named")
    deletes_cookies = wanted.deletes_cookie and not wanted.is_dry
    if deletes_cookies:
        await _require_all_stopped(at, lost)
    options = at.options
    if wanted.bytes_per_s is not None:
        options = replace(options, replication_bytes_per_s=wanted.bytes_per_s)
    repairer = Repairer(at.store, at.bookies, options, lost=lost)
    seen = failed = 0

    async def recover_one(metadata: LedgerMetadata) -> None:
        nonlocal seen, failed
        if wanted.ledger_id not in (None, metadata.ledger_id):
            return
        seen += 1
        is_open = not lost.isdisjoint(open_ensemble(metadata))
        if wanted.is_query:
            result = "open" if is_open else "closed"
        elif is_open and wanted.skip_open:
            result = "left open"
        elif wanted.is_dry:
            result = "; ".join(await _plan(at, metadata, lost))
        else:
            outcome = await _recover_ledger(at, repairer, metadata.ledger_id, lost)
            failed += outcome is not Outcome.WHOLE
            result = "left to the worker that has it" if outcome is None else outcome.value
        at.say(f"ledger {metadata.ledger_id}: {result}")

    invalid = await _each_needed(at, lost, recover_one)
    if not seen:
        ledgers = "no ledger" if wanted.ledger_id is None else f"ledger {wanted.ledger_id}: not"
        at.say(f"{ledgers} on bookie {wanted.bookie_id}")
    if failed + invalid:
        if deletes_cookies:
            at.say(f"bookie {wanted.bookie_id}: cookie kept, {failed + invalid} ledgers need it")
        return int(not wanted.skips_failed)
    if deletes_cookies:
        await _require_all_stopped(at, lost)
        for bookie_id in sorted(lost):
            had_one = await _delete_cookie(at, bookie_id)
            at.say(f"bookie {bookie_id}: {'cookie deleted' if had_one else 'it had no cookie'}")
    return 0


async def _require_all_stopped(at: Cluster, bookies: Collection[str]) -> None:
    for bookie_id in sorted(bookies):
        await _require_stopped(at, bookie_id)


async def _plan(at: Cluster, metadata: LedgerMetadata, lost: frozenset[str]) -> list[str]:
    """What a recovery would do now with a ledger. What is written to an open one meanwhile may
    change it.
    """
    registered = (await read_registered(at.store)).without(lost)
    writable = [each for each in at.bookies.writable() if each in registered.writable]
    said = []
    if not lost.isdisjoint(open_ensemble(metadata)):
        said.append("would be closed first")
    for fragment in closed_fragments(metadata):
        chosen: dict[int, str] = {}
        for place, bookie_id in enumerate(fragment.ensemble):
            lack = Lack(fragment, place, None)
            if bookie_id not in lost or next(share(metadata, fragment, place), None) is None:
                continue
            target = choose_target(metadata, lack, chosen, writable, at.bookies.rules(), 0)
            if target is not None:
                chosen[place] = target
            said.append(
                f"entries {fragment.first} to {fragment.end - 1} of {bookie_id} would be copied to "
                + (target or "no bookie: no other one is writable")
            )
    return said


async def _recover_ledger(
    at: Cluster, repairer: Repairer, ledger_id: int, lost: Collection[str]
) -> Outcome | None:
    """None if another worker has it."""
    await at.tasks.publish(ledger_id, sorted(lost))
    task = await at.tasks.acquire(ledger_id, at.store.session.epoch)
    if task is None:
        return None
    await repairer.recover(ledger_id)
    outcome = await repairer.repair(ledger_id, set(lost))
    if outcome is Outcome.WHOLE:
        await at.tasks.complete(task)
    await at.tasks.release(ledger_id)
    return outcome

"""The election of the auditor: the lowest of ephemeral sequential nodes (spec BK-26; Apache's
AuditorElector, ZkLedgerAuditorManager).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    MetadataError,
    MetadataStore,
    SessionExpired,
    SessionPhase,
    StoreUnavailable,
)

_log = logging.getLogger(__name__)

RETRY_S = 1.0
POLL_S = 30.0
"""The votes are read at least so often."""


async def current_auditor(store: MetadataStore) -> str | None:
    """Id of the elected auditor, None without one. Raises MetadataError."""
    votes = tree.in_order(await store.children(tree.ELECTION))
    node = await store.get(f"{tree.ELECTION}/{votes[0]}") if votes else None
    try:
        return None if node is None else tree.decode_vote(node.value)
    except ValueError as error:
        raise MetadataError(f"the vote {votes[0]} is not valid: {error}") from None


async def run_elected(
    store: MetadataStore, candidate: str, lead: Callable[[], Awaitable[None]]
) -> None:
    """Stand for election, for ever; `lead` runs while elected, and is cancelled when the session or
    the vote is lost. Raises SessionExpired once the store is closed.
    """
    while True:
        session = store.session
        if session.phase is SessionPhase.CLOSED:
            raise SessionExpired("the metadata store is closed")
        try:
            async with trio.open_nursery() as nursery:
                scope = nursery.cancel_scope
                nursery.start_soon(_stand, store, candidate, session.epoch, lead, scope)
                await _changed(store, session.epoch)
                scope.cancel()
        except* MetadataError as errors:
            _log.warning("the auditor's election can't be read: %s", errors.exceptions[0])
        await trio.sleep(RETRY_S)


async def _changed(store: MetadataStore, epoch: int) -> None:
    try:
        await store.wait_change(epoch)
    except SessionExpired:
        pass  # closed


async def _stand(
    store: MetadataStore,
    candidate: str,
    epoch: int,
    lead: Callable[[], Awaitable[None]],
    scope: trio.CancelScope,
) -> None:
    """Vote, wait for the turn, lead while the vote is there; then cancel the scope."""
    async with store.watch(tree.ELECTION) as changes, trio.open_nursery() as nursery:
        is_leading = False
        vote = await _vote(store, candidate, epoch)
        while vote in (votes := tree.in_order(await store.children(tree.ELECTION))):
            if votes[0] == vote and not is_leading:
                await store.put(tree.ELECTION, tree.encode_vote(candidate))
                _log.info("%s is the auditor", candidate)
                is_leading = True
                nursery.start_soon(lead)
            with trio.move_on_after(POLL_S):
                try:
                    await changes.receive()
                except trio.EndOfChannel:
                    break  # the store is closed
                while changes.statistics().current_buffer_used:
                    changes.receive_nowait()
        _log.warning("the vote %s is gone: not the auditor any more", vote)
        scope.cancel()


async def _vote(store: MetadataStore, candidate: str, epoch: int) -> str:
    """Name of our vote. One that was made by an attempt whose answer was lost is taken: it would
    stand before all others as long as the session lives.
    """
    value = tree.encode_vote(candidate)
    for name in tree.in_order(await store.children(tree.ELECTION)):
        node = await store.get(f"{tree.ELECTION}/{name}")
        if node is not None and node.stat.created_by_self and node.value == value:
            return name
    path, _ = await store.put(tree.VOTE, value, MUST_NOT_EXIST, epoch=epoch, sequential=True)
    return path.rpartition("/")[2]


async def withdraw(store: MetadataStore, candidate: str) -> None:
    """Delete our votes; without an answer they go with the session."""
    value = tree.encode_vote(candidate)
    try:
        for name in await store.children(tree.ELECTION):
            node = await store.get(f"{tree.ELECTION}/{name}")
            if node is not None and node.stat.created_by_self and node.value == value:
                await store.delete(f"{tree.ELECTION}/{name}")
    except (MetadataError, StoreUnavailable) as error:
        _log.info("the auditor's vote is deleted with its session: %s", error)

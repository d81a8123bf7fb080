"""The leader of a cluster's brokers (spec CL-06; Apache's LeaderElectionService).

Whoever has the ephemeral node leads. Without a leader, or a session, each broker decides by itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.records import LEADER_PATH, LeaderRecord, decode, encode
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
    SessionExpired,
    SessionPhase,
)

_log = logging.getLogger(__name__)

RETRY_S = 1.0
STANDS_MAX = 8
"""Leaders that come and go between a refused write and the look at who leads."""
LOOK_AGAIN_S = 30.0
"""How often who follows looks whether there is a leader, should a notification be lost."""


class Election:
    """One broker's part in it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._epoch: int | None = None
        """Of the session in which this broker leads."""
        self._changed = trio.Event()
        self._addresses = Addresses("", "")

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads now."""
        session = self._store.session
        return self._epoch == session.epoch and session.phase in (
            SessionPhase.CONNECTED,
            SessionPhase.SUSPENDED,
        )

    async def leader(self) -> LeaderRecord | None:
        """Who leads now, None if nobody does. Raises MetadataError."""
        node = await self._store.get(LEADER_PATH)
        return None if node is None else decode(node.value, LeaderRecord)

    async def wait_change(self) -> None:
        """Until this broker begins or ceases to lead."""
        await self._changed.wait()

    async def run(
        self, addresses: Addresses, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Stand until cancelled; started once it is known who leads. Then steps down."""
        self._addresses = addresses
        record = LeaderRecord(addresses.broker_id, addresses.web_url or addresses.web_url_tls)
        try:
            async with self._store.watch(LEADER_PATH) as changes:
                started = False
                while True:
                    wait_s = LOOK_AGAIN_S
                    try:
                        await self._stand(record)
                    except SessionExpired:
                        wait_s = RETRY_S
                    except MetadataError as error:
                        _log.warning("the leader of the cluster is not known: %s", error)
                        wait_s = RETRY_S
                    if not started:
                        started = True
                        task_status.started()
                    await self._wait(changes, wait_s)
        finally:
            await self._step_down()  # noqa: ASYNC102 - shielded there

    async def _stand(self, record: LeaderRecord) -> None:
        if self.is_leader:
            node = await self._store.get(LEADER_PATH)
            if node is not None and node.stat.created_by_self:
                return
            self._set(None)
        for _ in range(STANDS_MAX):
            epoch = self._store.session.epoch
            try:
                await self._store.put(LEADER_PATH, encode(record), MUST_NOT_EXIST, epoch=epoch)
            except BadVersion:
                if await self._is_led(record):
                    return
            else:
                self._set(epoch)
                return
        raise MetadataError("the leader's node comes and goes")

    async def _is_led(self, record: LeaderRecord) -> bool:
        """Whether another broker leads, or this one in a request whose answer was lost. A node of
        an earlier session of this broker, which ends with that, is removed, as one that is no
        record and nobody's.
        """
        node = await self._store.get(LEADER_PATH)
        if node is None:
            return False
        if node.stat.created_by_self:
            self._set(self._store.session.epoch)
            return True
        found = decode(node.value, LeaderRecord)
        if node.stat.ephemeral if found is None else found.broker_id != record.broker_id:
            self._set(None)
            return True
        with suppress(NoNode, BadVersion):
            await self._store.delete(LEADER_PATH, node.stat.version)
        return False

    def _set(self, epoch: int | None) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            if epoch is not None:
                _log.info("this broker leads the cluster")
            changed, self._changed = self._changed, trio.Event()
            changed.set()

    async def _wait(self, changes: trio.MemoryReceiveChannel[object], wait_s: float) -> None:
        """Until the node changes or the session ends, or it is time to look again."""
        epoch = self._store.session.epoch
        with trio.move_on_after(wait_s):
            async with trio.open_nursery() as nursery:

                async def session_ends() -> None:
                    with suppress(SessionExpired):
                        await self._store.wait_change(epoch)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(session_ends)
                await changes.receive()
                nursery.cancel_scope.cancel()
        if self._epoch is not None and not self.is_leader:
            self._set(None)

    async def _step_down(self) -> None:
        epoch, led = self._epoch, self.is_leader
        self._set(None)  # first: another broker leads as soon as the node is gone
        if led:
            with trio.move_on_after(2.0, shield=True), suppress(MetadataError):
                node = await self._store.get(LEADER_PATH)
                is_ours = node is not None and node.stat.created_by_self
                if node is not None and is_ours and self._store.session.epoch == epoch:
                    await self._store.delete(LEADER_PATH, node.stat.version)

"""The bundles that this broker owns (spec CL-04; Apache's OwnershipCache and ResourceLockImpl).

A bundle is owned by whoever has its ephemeral node. The node lives as long as the session with the
metadata store: once that is lost, by our own clock, another broker may own the bundle, and `holds`
is false without anybody being asked. `lost` is called once for each bundle that is lost, whatever
took it: the end of the session, or somebody who removed or replaced the node.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import (
    OWNERS_PATH,
    OwnerRecord,
    decode,
    encode,
    owner_path,
    owner_record,
)
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataError,
    MetadataStore,
    Node,
    NoNode,
    Session,
    SessionExpired,
    SessionPhase,
    StoreUnavailable,
)
from geminga_runtime.metadata.cached import Remembering
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

ACQUIRE_ATTEMPTS_MAX = 8
"""Nodes that vanish between a refused write and the look at who has it; more is a broken store."""

RETRY_S = 1.0
FORGET_S = 5.0
FORGET_RETRY_S = 0.5
WATCH_EVENTS_MAX = 4096


@dataclass(slots=True)
class _Hold:
    """A bundle whose node is ours. `version` is the node's, None while a write is under way."""

    epoch: int
    version: int | None
    tenure: int
    disabled: bool = False


Exists = Callable[[BundleId], Awaitable[bool]]
"""Whether the namespace has such a bundle. Raises MetadataError."""


class BundleOwnership:
    """Takes, watches and gives up bundles for one broker."""

    def __init__(self, store: MetadataStore, lost: Callable[[list[BundleId]], None]) -> None:
        self._store = store
        self._remembering = store if isinstance(store, Remembering) else None
        self._lost = lost
        self._holds: dict[BundleId, _Hold] = {}
        self._acquiring: dict[BundleId, Promise[OwnerRecord]] = {}
        self._tenures = count()
        self.addresses = Addresses("", "")
        """This broker's, set before anything is acquired."""
        self.listeners: Mapping[str, Addresses] = {}
        """Those of its named listeners."""

    @property
    def has_session(self) -> bool:
        """Whether what is owned is owned now."""
        return _is_alive(self._store.session)

    def owned(self) -> list[BundleId]:
        """The bundles that are served here, also those that are being unloaded."""
        return [bundle for bundle in self._holds if self._is_held(bundle)]

    def holds(self, bundle: BundleId) -> bool:
        """Whether topics of the bundle may be loaded and used here now."""
        hold = self._holds.get(bundle)
        return hold is not None and not hold.disabled and self._is_held(bundle)

    def tenure(self, bundle: BundleId) -> int | None:
        """A number of its own for each time that this broker took the bundle; None if `holds` is
        false.
        """
        return self._holds[bundle].tenure if self.holds(bundle) else None

    def is_unloading(self, bundle: BundleId) -> bool:
        """Whether it is ours, and being given up."""
        hold = self._holds.get(bundle)
        return hold is not None and hold.disabled

    def _is_held(self, bundle: BundleId) -> bool:
        hold = self._holds.get(bundle)
        if hold is None:
            return False
        session = self._store.session
        return hold.epoch == session.epoch and _is_alive(session)

    def record(self, *, disabled: bool = False) -> OwnerRecord:
        """This broker as an owner."""
        return owner_record(self.addresses, self.listeners, disabled=disabled)

    async def owner(self, bundle: BundleId) -> OwnerRecord | None:
        """Who owns it now, None if nobody does. Raises MetadataError."""
        if self._is_held(bundle):
            return self.record(disabled=self._holds[bundle].disabled)
        node = await self._store.get(owner_path(bundle))
        return None if node is None else self._read(bundle, node)

    def known_owner(self, bundle: BundleId) -> OwnerRecord | None:
        """Who owns it, if the store remembers somebody."""
        if self._remembering is None:
            return None
        known = self._remembering.remembered(owner_path(bundle))
        return self._read(bundle, known.node) if known is not None and known.node else None

    def is_of_earlier_life(self, bundle: BundleId, owner: OwnerRecord) -> bool:
        """Whether the owner's node has this broker's address, but is of an earlier session: clients
        come here for it, so it is taken again, before that session ends.
        """
        return owner.addresses == self.addresses and not self._is_held(bundle)

    def _read(self, bundle: BundleId, node: Node) -> OwnerRecord | None:
        record = decode(node.value, OwnerRecord)
        if record is None and node.value:
            _log.warning("bundle=%s its owner's record is not valid: %.200r", bundle, node.value)
        return record

    async def acquire(self, bundle: BundleId) -> OwnerRecord:
        """Own it unless another broker does; returns who does. Raises MetadataError."""
        while True:
            if self._is_held(bundle):
                return self.record(disabled=self._holds[bundle].disabled)
            running = self._acquiring.get(bundle)
            if running is None:
                return await self._acquire_alone(bundle)
            return await running.wait()

    async def take(self, bundle: BundleId, exists: Exists) -> OwnerRecord | None:
        """`acquire` a bundle; None, and nobody's again, if a split has replaced it meanwhile. That
        is asked afterwards: who finds that the split has removed the node sees the new bundles too.
        Raises MetadataError.
        """
        owner = await self.acquire(bundle)
        if owner.addresses == self.addresses and not await exists(bundle):
            _log.info("bundle=%s was split while it was taken", bundle)
            await self.forget(bundle)
            return None
        return owner

    async def _acquire_alone(self, bundle: BundleId) -> OwnerRecord:
        promise = self._acquiring[bundle] = Promise[OwnerRecord]()
        try:
            found = await self._acquire(bundle)
        except MetadataError as error:
            promise.reject(error)
            raise
        except BaseException:
            promise.reject(StoreUnavailable("the one who asked for the bundle has gone"))
            raise
        else:
            promise.resolve(found)
            return found
        finally:
            del self._acquiring[bundle]

    async def _acquire(self, bundle: BundleId) -> OwnerRecord:
        path, record = owner_path(bundle), self.record()
        for _ in range(ACQUIRE_ATTEMPTS_MAX):
            epoch = self._store.session.epoch
            try:
                _, stat = await self._store.put(path, encode(record), MUST_NOT_EXIST, epoch=epoch)
            except BadVersion:
                pass
            except StoreUnavailable:
                # It may have been written: then it is ours, and nobody would know.
                node = await self._store.get(path)  # noqa: ASYNC120 - the cancellation counts
                if node is None or not node.stat.created_by_self:
                    raise
            else:
                self._hold(bundle, epoch, stat.version)
                return record
            node = await self._store.get(path)
            if node is None:
                continue
            if node.stat.created_by_self and self._store.session.epoch == epoch:
                self._hold(bundle, epoch, node.stat.version)
                return record
            found = self._read(bundle, node)
            if found is None and node.stat.ephemeral:
                raise StoreUnavailable(f"bundle {bundle} is owned, but its record can't be read")
            if found is not None and found.addresses != self.addresses:
                return found
            # Ours of an earlier session, or nobody's: as in Apache it is removed, not adopted,
            # since it ends with that session.
            with suppress(NoNode, BadVersion):
                await self._store.delete(path, node.stat.version)
        raise StoreUnavailable(f"bundle {bundle}: its node comes and goes")

    def _hold(self, bundle: BundleId, epoch: int, version: int) -> None:
        self._holds[bundle] = _Hold(epoch, version, next(self._tenures))
        _log.info("bundle=%s is owned by this broker", bundle)

    async def disable(self, bundle: BundleId) -> None:
        """Begin to give it up: nobody finds it here any more, nor may own it yet. Raises
        MetadataError; it is disabled here all the same.
        """
        hold = self._holds[bundle]
        hold.disabled = True
        record = self.record(disabled=True)
        # Of this session: in a later one the node of that version may be another broker's.
        path, version = owner_path(bundle), hold.version
        _, stat = await self._store.put(path, encode(record), version, epoch=hold.epoch)
        hold.version = stat.version

    async def release(self, bundle: BundleId) -> None:
        """Give it up: another broker may own it from now on. Raises MetadataError: then it is ours
        until the session ends.
        """
        hold = self._holds.get(bundle)
        if hold is None:
            return
        await self._remove(bundle)
        if self._holds.get(bundle) is hold:
            del self._holds[bundle]

    async def _remove(self, bundle: BundleId) -> None:
        """Remove our node, and none of another broker: ours may be gone already, by a request
        whose answer was lost, or with the session while it was read.
        """
        path, epoch = owner_path(bundle), self._store.session.epoch
        node = await self._store.get(path)
        if node is None or not node.stat.created_by_self or self._store.session.epoch != epoch:
            return
        with suppress(NoNode, BadVersion):
            await self._store.delete(path, node.stat.version)

    async def forget(self, bundle: BundleId) -> None:
        """Remove the node of a bundle that no topic needs: it was split, or the split failed. If
        the store can't answer for FORGET_S, the node ends with the session. Ends even if cancelled.
        """
        self._holds.pop(bundle, None)
        with trio.move_on_after(FORGET_S, shield=True):
            while self.has_session and bundle not in self._holds:
                if (running := self._acquiring.get(bundle)) is not None:
                    with suppress(MetadataError):  # whoever takes it now is to keep what he gets
                        await running.wait()
                    continue
                try:
                    await self._remove(bundle)
                except MetadataError:  # left there it would refuse others' splits at this hash
                    await trio.sleep(FORGET_RETRY_S)
                else:
                    return

    async def run(self) -> None:
        """Look after what is owned, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_session)
            nursery.start_soon(self._follow_nodes)

    async def _follow_session(self) -> None:
        epoch = self._store.session.epoch
        with suppress(SessionExpired):
            while True:
                epoch = (await self._store.wait_change(epoch)).epoch
                self._drop([b for b, hold in self._holds.items() if hold.epoch != epoch])

    async def _follow_nodes(self) -> None:
        """Somebody may remove or replace a node of ours: an operator, or Apache's broker that finds
        a node of its own address.
        """
        async with self._store.watch(OWNERS_PATH, events_max=WATCH_EVENTS_MAX) as changes:
            async for change in changes:
                if change.kind is Change.LOST:
                    await self._check(list(self._holds))
                elif change.kind in (Change.DELETED, Change.MODIFIED):
                    bundle = _bundle_of(change.path)
                    if bundle in self._holds:
                        await self._check([bundle])

    async def _check(self, bundles: Iterable[BundleId]) -> None:
        for bundle in bundles:
            hold = self._holds.get(bundle)
            while hold is not None and self._holds.get(bundle) is hold:
                try:
                    node = await self._store.get(owner_path(bundle))
                except MetadataError:
                    await trio.sleep(RETRY_S)
                    continue
                if (node is None or not node.stat.created_by_self) and (
                    self._holds.get(bundle) is hold
                ):
                    self._drop([bundle])
                break

    def _drop(self, bundles: list[BundleId]) -> None:
        for bundle in bundles:
            del self._holds[bundle]
        if bundles:
            names = ", ".join(map(str, bundles[:10]))
            _log.warning("%d bundles are no longer owned by this broker: %s", len(bundles), names)
            self._lost(bundles)


def _is_alive(session: Session) -> bool:
    return session.phase in (SessionPhase.CONNECTED, SessionPhase.SUSPENDED)


def _bundle_of(path: str) -> BundleId | None:
    try:
        return BundleId.parse(path.removeprefix(f"{OWNERS_PATH}/"))
    except ValueError:
        return None

"""A bookie's registration: an ephemeral node beneath `available`, or `available/readonly` while it
takes no new entries (spec BK-10, BK-27; Apache's ZKRegistrationManager and BookieStateManager).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import trio

from geminga_bookie.registered import RPC, endpoint
from geminga_protocol.bookkeeper import paths
from geminga_protocol.pb.bookkeeper_metadata_pb2 import BookieServiceInfoFormat
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    MetadataError,
    MetadataStore,
    NoNode,
    SessionExpired,
)

REMOVE_S = 2.0
"""Time for the removal at the end; the session's end removes what is left."""
RETRY_S = 1.0
PATIENCE_S = 30.0
"""Apache's zkTimeout: a killed bookie's session ends meanwhile."""
ENDPOINT_ID = "bookie"

_log = logging.getLogger(__name__)


def service_info(host: str, port: int) -> bytes:
    """The value of a registration, as Apache's bookie writes it."""
    info = BookieServiceInfoFormat()
    info.endpoints.add(id=ENDPOINT_ID, host=host, port=port, protocol=RPC)
    return info.SerializeToString()


async def registered_now(store: MetadataStore, bookie_id: str) -> str:
    """What a refused start adds if a bookie of its id runs; nothing if none is registered. Raises
    MetadataError.
    """
    for path in (f"{paths.available()}/{bookie_id}", f"{paths.readonly()}/{bookie_id}"):
        node = await store.get(path)
        if node is not None:
            found = endpoint(node.value)
            where = "" if found is None else f" at {found[0]}:{found[1]}"
            return (
                f"; a bookie with this id is registered{where} now: if that one runs, this one "
                "needs a bookieId, or an advertisedAddress and bookiePort, of its own"
            )
    return ""


class RegisteredElsewhere(MetadataError):
    """Another process is registered by the bookie's id, at another address."""


class Registration:
    """Follows the store's sessions and the bookie's mode; see `registered`."""

    def __init__(
        self,
        store: MetadataStore,
        bookie_id: str,
        value: bytes,
        read_only: Callable[[], bool],
    ) -> None:
        self._store = store
        self._bookie_id = bookie_id
        self._value = value
        self._read_only = read_only
        self._paths = {
            False: f"{paths.available()}/{bookie_id}",
            True: f"{paths.readonly()}/{bookie_id}",
        }
        self._done: tuple[int, bool] | None = None
        """Session and mode of the last registration."""
        self._look = trio.Event()

    def look(self) -> None:
        """The bookie's mode may have changed."""
        self._look.set()

    async def register(self) -> None:
        """By the session and the mode of now. Raises MetadataError."""
        epoch, read_only = self._store.session.epoch, self._read_only()
        if self._done == (epoch, read_only):
            return
        self._done = None
        await self._refuse_another()
        await self._make(self._paths[read_only], epoch)
        await self._remove(self._paths[not read_only])
        self._done = epoch, read_only
        mode = "read-only" if read_only else "writable"
        _log.info("bookie %s is registered as %s", self._bookie_id, mode)

    async def register_first(self, patience_s: float) -> None:
        """Wait until the session has ended of a bookie that was killed and had another address;
        one that stays serves. Raises MetadataError.
        """
        deadline = trio.current_time() + patience_s
        while trio.current_time() < deadline:
            try:
                await self.register()
                return
            except RegisteredElsewhere:
                await trio.sleep(RETRY_S)
        await self.register()

    async def _refuse_another(self) -> None:
        """A copy of this bookie's directories has the same cookie, and locks of its own."""
        for path in self._paths.values():
            node = await self._store.get(path)
            if node is None or node.stat.created_by_self or node.value == self._value:
                continue
            found = endpoint(node.value)
            where = "another address" if found is None else f"{found[0]}:{found[1]}"
            raise RegisteredElsewhere(
                f"bookie {self._bookie_id} serves at {where} already; a copy of its directories "
                "must never be started beside it"
            )

    async def _make(self, path: str, epoch: int) -> None:
        """Anew, unless it is this session's: a node that is there would be removed with its own
        session. That one was this bookie's too, killed or cut off: it has the same address.
        """
        node = await self._store.get(path)
        if node is not None:
            if node.stat.created_by_self and node.value == self._value:
                return
            await self._remove(path)
        await self._store.put(path, self._value, MUST_NOT_EXIST, epoch=epoch)

    async def _remove(self, path: str) -> None:
        with suppress(NoNode):
            await self._store.delete(path)

    async def follow_sessions(self) -> None:
        """Register in each later session, until the store is closed."""
        with suppress(SessionExpired):
            while True:
                epoch = self._store.session.epoch
                self._look.set()
                await self._store.wait_change(epoch)

    async def run(self) -> None:
        """Register again after each change, for ever."""
        said = ""
        while True:
            await self._look.wait()
            self._look = trio.Event()
            try:
                await self.register()
            except MetadataError as error:
                if said != str(error):
                    said = str(error)
                    _log.warning("bookie %s can't be registered yet: %s", self._bookie_id, error)
                await trio.sleep(RETRY_S)
                self._look.set()
            else:
                said = ""

    async def remove(self) -> None:
        """Have no new ledgers placed here. What isn't this session's is left."""
        for path in self._paths.values():
            with suppress(MetadataError):
                node = await self._store.get(path)
                if node is not None and node.stat.created_by_self:
                    await self._store.delete(path)


@asynccontextmanager
async def registered(
    registration: Registration, patience_s: float = PATIENCE_S
) -> AsyncIterator[None]:
    """Keep the bookie registered while the context is open. Raises MetadataError if it can't be at
    first, after `patience_s` if another process is.
    """
    try:
        await registration.register_first(patience_s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.follow_sessions)
            nursery.start_soon(registration.run)
            yield
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(REMOVE_S, shield=True):
            await registration.remove()

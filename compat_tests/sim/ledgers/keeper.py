"""A twin of ZooKeeper: one tree, and a session of each process behind the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import trio

from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    NUMBER_DIGITS,
    MetadataError,
    Node,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Writes,
)
from geminga_runtime.metadata.beneath import SessionBeneath
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.waiters import Promise

from .network import Network

ResultT = TypeVar("ResultT")
KEEPER = "keeper"
CALL_S = 3.0
"""A call without an answer fails after this time; it may be executed later."""


class KeeperDoor(SessionBeneath):
    """The `MetadataStore` of one process; what changed is told at once, and read through the
    network.
    """

    def __init__(
        self, owner: str, tree: MemoryMetadataStore, network: Network, session_s: float
    ) -> None:
        self._owner = owner
        self._session = tree.another_session()
        super().__init__(self._session)
        self._network = network
        self._session_s = session_s
        self.is_closed = False

    def close(self) -> None:
        """The process is gone: its session ends some time later."""
        if not self.is_closed:
            self.is_closed = True
            timeline = self._network.timeline
            timeline.at(trio.current_time() + self._session_s, self.expire)

    def expire(self) -> None:
        """The session is lost."""
        self._session.expire_session()

    async def _call(self, kind: str, work: Callable[[], ResultT]) -> ResultT:
        """Send a request; it is executed once, or never, and the answer may be lost."""
        answer = Promise[ResultT]()
        network, owner = self._network, self._owner
        session, epoch = self._session, self._session.session.epoch

        def execute() -> None:
            if session.session.epoch != epoch:
                failed = SessionExpired("the session ended, by the simulation")
                network.send(KEEPER, owner, lambda: answer.reject(failed), kind)
                return
            try:
                result = work()
            except MetadataError as error:
                refused = error
                network.send(KEEPER, owner, lambda: answer.reject(refused), kind)
            else:
                network.send(KEEPER, owner, lambda: answer.resolve(result), kind)

        if self.is_closed:
            raise SessionExpired("the process is gone, by the simulation")
        network.send(owner, KEEPER, execute, kind)
        with trio.move_on_after(CALL_S):
            return await answer.wait()
        raise StoreUnavailable("no answer, by the simulation")

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        return await self._call("get", lambda: self._session.get_now(path))

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """See `MetadataStore.put`."""
        session = self._session
        request = session.put_request(path, value, expected_version, epoch, sequential)
        session.check_epoch(epoch)

        def work() -> tuple[str, Stat]:
            made, stat = session.put_now(request)
            self._network.log.add(f"{self._owner} put {made} {stat.version}")
            return made, stat

        return await self._call("put", work)

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """See `MetadataStore.put_numbered`; as ZooKeeper's, whose number is a node of its own."""
        epoch = self._session.session.epoch
        path, _ = await self.put(at, b"", MUST_NOT_EXIST, epoch=epoch, sequential=True)
        number = int(path[-NUMBER_DIGITS:])

        def drop() -> None:
            with suppress(MetadataError):  # gone with its session
                self._session.delete_now(path, None)

        self._network.send(self._owner, KEEPER, drop, "delete")
        found = writes(number)

        def work() -> Sequence[int]:
            versions = self._session.put_all_now(found)
            for each, version in zip(found, versions, strict=True):
                self._network.log.add(f"{self._owner} put {each.path} {version}")
            return versions

        return number, await self._call("put", work)

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """See `MetadataStore.delete`."""

        def work() -> None:
            self._session.delete_now(path, expected_version)
            self._network.log.add(f"{self._owner} deleted {path}")

        await self._call("delete", work)

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return await self.get(path) is not None

    async def children(self, path: str) -> Sequence[str]:
        """See `MetadataStore.children`."""
        return await self._call("children", lambda: self._session.children_now(path))

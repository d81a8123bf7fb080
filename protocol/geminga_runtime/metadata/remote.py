"""A metadata store that is in another process of the machine (spec CL-15); `remote_server` serves
it.

A connection is a session: both end together. After a loss the next connection begins a new session,
in which the watches are armed again, each with LOST. A change whose connection was lost has an
unknown outcome: it raises StoreUnavailable and is never sent again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import trio

from geminga_protocol.bookkeeper.framing import WireError
from geminga_runtime.backoff import Backoff
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.lasting import open_lasting_nursery
from geminga_runtime.message_frames import encode
from geminga_runtime.metadata import remote_frames as frames
from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    NUMBER_DIGITS,
    Node,
    Notification,
    Session,
    SessionExpired,
    SessionPhase,
    Stat,
    StoreUnavailable,
    ValueTooLarge,
    Writes,
)
from geminga_runtime.metadata.paths import check_path
from geminga_runtime.metadata.remote_server import SESSION_TIMEOUT_S
from geminga_runtime.metadata.room import Room
from geminga_runtime.metadata.session import SessionTracker
from geminga_runtime.metadata.tree import PERSISTENT, Put, check_put
from geminga_runtime.metadata.watches import WatchHub
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

Dial = Callable[[float], Awaitable[FramedStream]]
"""Opens a connection before a deadline of Trio's clock, or raises ConnectFailed."""

PINGS = 3
"""Pings within the time-out of a session."""

CLOSE_S = 5.0
"""How long a close waits for the server; the connection's end ends the session as well."""


@dataclass(frozen=True, slots=True)
class RemoteStoreOptions:
    """Settings of a client."""

    session_timeout_s: float = SESSION_TIMEOUT_S
    """A session whose server doesn't answer for so long is lost; not above the server's own."""
    connect_timeout_s: float = 10.0
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0
    requests_max: int = 256
    """Requests under way, beside those of watches; further callers wait for room."""
    requests_bytes_max: int = 16 * 1024 * 1024
    value_bytes_max: int = 16 * 1024 * 1024


@asynccontextmanager
async def open_remote_store(
    dial: Dial, options: RemoteStoreOptions | None = None
) -> AsyncIterator[RemoteMetadataStore]:
    """A session, which lasts until the block has ended, also while it is cancelled. Raises
    StoreUnavailable if there is none within the time-out of connecting.
    """
    store = RemoteMetadataStore(dial, options)
    refused: StoreUnavailable | None = None
    async with open_lasting_nursery() as nursery:
        nursery.start_soon(store.run)
        try:
            await store.wait_connected()
        except StoreUnavailable as error:
            refused = error
        else:
            try:
                yield store
            finally:
                await store.aclose()
    if refused is not None:
        raise refused  # not in a group of exceptions


class RemoteMetadataStore:
    """Implements MetadataStore. The owner runs `run` in a task."""

    def __init__(self, dial: Dial, options: RemoteStoreOptions | None = None) -> None:
        self._dial = dial
        self._options = options or RemoteStoreOptions()
        self._hub = WatchHub()
        self._heard_at = -math.inf
        self._tracker = SessionTracker(
            SessionPhase.LOST, deadline=self._deadline, on_loss=self._on_loss
        )
        self.wait_change = self._tracker.wait_change
        self._connection: _Connection | None = None
        self._room = Room(self._options.requests_max, self._options.requests_bytes_max)
        self._closed = False
        self._running = trio.CancelScope()

    def _deadline(self) -> float:
        return self._heard_at + self._options.session_timeout_s

    def _on_loss(self) -> None:
        if self._connection is not None:
            self._connection.stream.abort("the session is lost")

    @property
    def session(self) -> Session:
        """MetadataStore.session."""
        return self._tracker.session

    async def wait_connected(self) -> None:
        """Wait for the first session. Raises StoreUnavailable."""
        with trio.move_on_after(self._options.connect_timeout_s):
            await self._tracker.wait_session()
        if self.session.phase is not SessionPhase.CONNECTED:
            raise StoreUnavailable("no connection to the metadata store")

    async def run(self) -> None:
        """Keep connected, until closed."""
        options = self._options
        backoff = Backoff(options.backoff_s, options.backoff_max_s)
        with self._running:
            while True:
                try:
                    stream = await self._dial(trio.current_time() + options.connect_timeout_s)
                except ConnectFailed as error:
                    _log.warning("the metadata store can't be reached: %s", error)
                else:
                    await self._serve(_Connection(stream), backoff)
                await trio.sleep(backoff.next_s(trio.current_time()))

    async def _serve(self, connection: _Connection, backoff: Backoff) -> None:
        stream = connection.stream
        reason = "closed on our side"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.run_writer)
                nursery.start_soon(self._keep, connection, backoff)
                try:
                    await self._receive(connection)
                except (ConnectionLost, WireError) as error:
                    reason = str(error)
                nursery.cancel_scope.cancel()
        finally:
            self._connection = None
            stream.abort(reason)
            self._tracker.lose()
            connection.fail(StoreUnavailable(f"the session has ended: {reason}"))
            await stream.aclose()

    async def _keep(self, connection: _Connection, backoff: Backoff) -> None:
        """Begin the session with a first answer, then show that we live."""
        timeout_s = self._options.session_timeout_s
        while True:
            asked_at = trio.current_time()
            with trio.move_on_after(timeout_s) as scope:
                await connection.call(frames.Ping())
            if scope.cancelled_caught:
                connection.stream.abort(f"no answer for {timeout_s:g} s")
                return
            self._heard_at = asked_at
            if self._connection is None:
                backoff.reset()
                self._begin(connection)
            await trio.sleep(timeout_s / PINGS)

    def _begin(self, connection: _Connection) -> None:
        self._connection = connection
        for prefix in self._hub.prefixes():
            # Armed before anything is asked in this session, so LOST may be said now.
            connection.send(frames.Watch(prefix))
            self._hub.lose(prefix)
        self._tracker.connect()

    async def _receive(self, connection: _Connection) -> None:
        received = frames.answers()
        while data := await connection.stream.receive():
            for number, said, _ in received.feed(data):
                if isinstance(said, frames.Changed):
                    self._hub.publish(
                        [Notification(frames.KINDS[kind], path) for kind, path in said.changes]
                    )
                elif isinstance(said, frames.Missed):
                    for prefix in self._hub.prefixes():
                        self._hub.lose(prefix)
                else:
                    connection.answered(number, said)
        raise ConnectionLost(f"{connection.stream.name}: closed by the metadata store")

    # Requests.

    async def get(self, path: str) -> Node | None:
        """MetadataStore.get."""
        answer = await self._call(frames.Get(check_path(path)))
        if isinstance(answer, frames.NodeFound):
            return Node(answer.value, Stat(*answer.stat))
        return None

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put. A cancelled call may still take effect. Raises ValueTooLarge."""
        check_put(Put(path, b"", expected_version, PERSISTENT, sequential))
        if len(value) > self._options.value_bytes_max:
            text = f"{path}: {len(value)} bytes, of {self._options.value_bytes_max}"
            raise ValueTooLarge(text)
        request = frames.Put(path, bytes(value), expected_version, epoch is not None, sequential)
        answer = await self._call(request, len(value), epoch)
        assert isinstance(answer, frames.Made)
        return answer.path, Stat(*answer.stat)

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """MetadataStore.put_numbered: the number by a node of its own, which is not waited for when
        it goes; a cancelled call may still take effect. Raises ValueTooLarge.
        """
        epoch = self._tracker.session.epoch
        path, _ = await self.put(at, b"", MUST_NOT_EXIST, epoch=epoch, sequential=True)
        if self._connection is not None:
            self._connection.send(frames.Delete(path, ANY_VERSION))
        found = writes(int(path[-NUMBER_DIGITS:]))
        size = sum(len(each.value) for each in found)
        if size > self._options.value_bytes_max:
            raise ValueTooLarge(f"{at}: {size} bytes, of {self._options.value_bytes_max}")
        request = frames.PutAll([(each.path, each.value, each.version) for each in found])
        answer = await self._call(request, size)
        assert isinstance(answer, frames.Versions)
        return int(path[-NUMBER_DIGITS:]), answer.versions

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """MetadataStore.delete. A cancelled call may still take effect."""
        await self._call(frames.Delete(check_path(path), expected_version))

    async def exists(self, path: str) -> bool:
        """MetadataStore.exists."""
        answer = await self._call(frames.Exists(check_path(path)))
        assert isinstance(answer, frames.Is)
        return answer.there

    async def children(self, path: str) -> Sequence[str]:
        """MetadataStore.children."""
        answer = await self._call(frames.Children(check_path(path)))
        assert isinstance(answer, frames.Names)
        return answer.names

    async def _call(
        self, request: frames.Request, size: int = 0, epoch: int | None = None
    ) -> frames.Answer:
        self._check_open()
        await trio.lowlevel.checkpoint()  # who was cancelled sends nothing
        await self._room.acquire(size)
        try:
            self._check_open()
            self._tracker.check_epoch(epoch)
            # By our own clock, which may say that a session is lost whose connection is there.
            is_connected = self.session.phase is SessionPhase.CONNECTED
            connection = self._connection
            if connection is None or not is_connected:
                raise StoreUnavailable("there is no session with the metadata store now")
            answer = await connection.call(request)
        finally:
            self._room.release(size)
        if isinstance(answer, frames.Refused):
            raise answer.error()
        return answer

    def _check_open(self) -> None:
        if self._closed:
            raise SessionExpired("the store is closed")

    # Watches.

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AsyncIterator[trio.MemoryReceiveChannel[Notification]]:
        """MetadataStore.watch. Without a connection it begins with the next one, and LOST."""
        async with self._hub.watch(prefix, events_max=events_max) as changes:
            try:
                await self._arm(prefix)
                yield changes
            finally:
                connection = self._connection
                if connection is not None and self._hub.count(prefix) == 1:
                    connection.send(frames.Unwatch(prefix))

    async def _arm(self, prefix: str) -> None:
        self._check_open()
        connection = self._connection
        if connection is None:
            await trio.lowlevel.checkpoint()
            return
        with suppress(StoreUnavailable):  # the next connection arms it
            answer = await connection.call(frames.Watch(prefix))
            if isinstance(answer, frames.Refused):
                raise answer.error()

    async def aclose(self) -> None:
        """MetadataStore.aclose: completes earlier requests first. Closes even when cancelled."""
        with trio.CancelScope(shield=True):
            if not self._closed:
                self._closed = True
                connection = self._connection
                if connection is not None:
                    with trio.move_on_after(CLOSE_S), suppress(StoreUnavailable):
                        await connection.call(frames.Close())
                self._tracker.close()
                self._hub.close()
                self._running.cancel()
        await trio.lowlevel.checkpoint()


class _Connection:
    """Requests of one connection that wait for their answers."""

    def __init__(self, stream: FramedStream) -> None:
        self.stream = stream
        self._waiting: dict[int, Promise[frames.Answer]] = {}
        self._number = frames.UNASKED
        self._failed: StoreUnavailable | None = None

    def send(self, request: frames.Request) -> int:
        """Send it, whatever the answer is; returns its number."""
        self._number += 1
        self.stream.write(encode(self._number, request))
        return self._number

    async def call(self, request: frames.Request) -> frames.Answer:
        """Send it, and wait for the answer. Raises StoreUnavailable."""
        if self._failed is not None:
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable(str(self._failed))
        promise: Promise[frames.Answer] = Promise()
        number = self.send(request)
        self._waiting[number] = promise
        try:
            return await promise.wait()
        finally:
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: frames.Answer) -> None:
        """Pass it on, if somebody waits."""
        promise = self._waiting.pop(number, None)
        if promise is not None:
            promise.resolve(answer)

    def fail(self, error: StoreUnavailable) -> None:
        """Fail what waits, and all that comes."""
        self._failed = error
        waiting, self._waiting = self._waiting, {}
        for promise in waiting.values():
            promise.reject(error)

"""Serves an embedded metadata store to other processes of the machine (spec CL-15): each connection
is a session, which ends with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from geminga_protocol.bookkeeper.framing import WireError
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.message_frames import encode
from geminga_runtime.metadata import remote_frames as frames
from geminga_runtime.metadata.api import MetadataError, Notification, StoreUnavailable, Write
from geminga_runtime.metadata.embedded import EmbeddedStore
from geminga_runtime.metadata.paths import parent_path
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 30.0
"""As Apache's `metadataStoreSessionTimeoutMillis`."""

RETRY_S = 1.0
"""Between attempts to delete the nodes of a session that has ended."""

END_S = 5.0
"""Time for these attempts when the server is stopped."""

_KINDS = {kind: place for place, kind in enumerate(frames.KINDS)}


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one connection."""

    session_timeout_s: float = SESSION_TIMEOUT_S
    """A client that is silent for so long loses its session."""
    requests_max: int = 1024
    """Requests under way; above it nothing is read."""
    requests_bytes_max: int = 32 * 1024 * 1024
    """Bytes of requests under way, if there is more than one."""
    watches_max: int = 100_000
    """Prefixes that are watched."""


async def serve_session(
    store: EmbeddedStore, stream: FramedStream, limits: ServerLimits | None = None
) -> None:
    """Serve one connection until the client goes, is silent or breaks the protocol; then delete the
    session's ephemeral nodes. When cancelled, those that can't be deleted soon are left to the end
    of the store. The caller closes the stream.
    """
    session = store.another_session()
    try:
        await _Connection(session, stream, limits or ServerLimits()).run()
    finally:
        with trio.move_on_after(END_S, shield=True):
            await _end(session, stream.name)
    await _end(session, stream.name)  # without effect after a success


async def _end(session: EmbeddedStore, name: str) -> None:
    while True:
        try:
            await session.aclose()
        except StoreUnavailable as error:
            _log.error("%s: the ephemeral nodes stay for now: %s", name, error)
        else:
            return
        await trio.sleep(RETRY_S)


class _Connection:
    """What a change is told of is written before the answers to whoever asks after it: changes come
    in the same turn as they are made, and there is one stream for both.
    """

    def __init__(self, session: EmbeddedStore, stream: FramedStream, limits: ServerLimits) -> None:
        self._session = session
        self._stream = stream
        self._limits = limits
        self._prefixes: set[str] = set()
        self._missed = False
        self._requests = 0
        self._bytes = 0
        self._answered = trio.Event()
        self._heard_at = trio.current_time()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stream.run_writer)
            nursery.start_soon(self._expire)
            with self._session.listen(self._changed):
                try:
                    await self._serve(nursery)
                except (ConnectionLost, WireError) as error:
                    _log.debug("%s: %s", self._stream.name, error)
            nursery.cancel_scope.cancel()

    async def _serve(self, nursery: trio.Nursery) -> None:
        received = frames.requests()
        while data := await self._stream.receive():
            self._heard_at = trio.current_time()
            for number, request, size in received.feed(data):
                if isinstance(request, frames.Close):
                    await self._close(number)
                    return
                if isinstance(request, frames.Watch | frames.Unwatch):
                    self._watch(number, request)
                else:
                    self._count(1, size)
                    nursery.start_soon(self._answer, number, request, size)
                await self._room()

    async def _expire(self) -> None:
        while True:
            until = self._heard_at + self._limits.session_timeout_s
            if trio.current_time() >= until:
                silent_s = trio.current_time() - self._heard_at
                _log.warning("%s: silent for %.1f s: session ended", self._stream.name, silent_s)
                self._stream.abort("the client is silent")
                return
            await trio.sleep_until(until)

    def _count(self, requests: int, size: int) -> None:
        self._requests += requests
        self._bytes += size
        if requests < 0:
            answered, self._answered = self._answered, trio.Event()
            answered.set()

    async def _room(self) -> None:
        limits = self._limits
        while self._requests >= limits.requests_max or (
            self._requests > 1 and self._bytes >= limits.requests_bytes_max
        ):
            await self._answered.wait()
        if not self._stream.writable:
            writable = trio.Event()
            self._stream.on_writable(writable.set)
            await writable.wait()

    async def _close(self, number: int) -> None:
        while self._requests:
            await self._answered.wait()
        await _end(self._session, self._stream.name)
        self._write(number, frames.Done())
        await self._stream.flush()

    async def _answer(self, number: int, request: frames.Request, size: int) -> None:
        try:
            answer = await self._do(request)
        except MetadataError as error:
            answer = frames.Refused.of(error)
        except ValueError as error:  # a client of ours has checked what it asks for
            answer = frames.Refused.of(MetadataError(str(error)))
        finally:
            self._count(-1, -size)
        self._write(number, answer)

    def _write(self, number: int, answer: frames.Answer) -> None:
        self._tell_missed()
        frame = encode(number, answer)
        if len(frame) > frames.FRAME_BYTES_MAX:
            error = MetadataError(f"an answer of {len(frame)} bytes is too long")
            frame = encode(number, frames.Refused.of(error))
        self._stream.write(frame)

    async def _do(self, request: frames.Request) -> frames.Answer:
        session = self._session
        match request:
            case frames.Get():
                node = await session.get(request.path)
                if node is None:
                    return frames.Done()
                return frames.NodeFound(node.value, frames.fields_of(node.stat))
            case frames.Exists():
                return frames.Is(await session.exists(request.path))
            case frames.Children():
                return frames.Names(list(await session.children(request.path)))
            case frames.Put():
                path, stat = await session.put(
                    request.path,
                    request.value,
                    request.expected_version,
                    epoch=session.session.epoch if request.ephemeral else None,
                    sequential=request.sequential,
                )
                return frames.Made(path, frames.fields_of(stat))
            case frames.PutAll():
                return frames.Versions(
                    list(await session.put_all([Write(*each) for each in request.writes]))
                )
            case frames.Delete():
                await session.delete(request.path, request.expected_version)
            case _:  # a ping
                pass
        return frames.Done()

    # Watches.

    def _watch(self, number: int, request: frames.Watch | frames.Unwatch) -> None:
        """At once: they take effect in their order."""
        if isinstance(request, frames.Unwatch):
            self._prefixes.discard(request.prefix)
        elif len(self._prefixes) >= self._limits.watches_max:
            error = MetadataError(f"{len(self._prefixes)} prefixes are watched already")
            self._write(number, frames.Refused.of(error))
        else:
            self._prefixes.add(request.prefix)
            self._write(number, frames.Done())

    def _changed(self, notifications: Sequence[Notification]) -> None:
        if not self._prefixes:
            return
        changes = [(_KINDS[each.kind], each.path) for each in notifications if self._watches(each)]
        if not changes:
            return
        if self._stream.writable and not self._missed:
            self._stream.write(encode(frames.UNASKED, frames.Changed(changes)))
        elif not self._missed:
            self._missed = True
            self._stream.on_writable(self._tell_missed)

    def _watches(self, notification: Notification) -> bool:
        path = notification.path
        while path not in self._prefixes:
            if path == "/":
                return False
            path = parent_path(path)
        return True

    def _tell_missed(self) -> None:
        if self._missed:
            self._missed = False
            self._stream.write(encode(frames.UNASKED, frames.Missed()))

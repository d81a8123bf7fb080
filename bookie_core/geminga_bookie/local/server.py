"""Serves a bookie to a client in another process of this machine."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from geminga_bookie.errors import BookkeeperError, StorageFailed, TooManyRequests
from geminga_bookie.local import frames
from geminga_bookie.port import BookiePort
from geminga_protocol.bookkeeper.framing import WireError
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.message_frames import encode
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Wakeup

_log = logging.getLogger(__name__)

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """Bounds of one connection."""

    unanswered_bytes_max: int = 64 * MiB
    """Bytes of adds without an answer; above it nothing is read."""
    calls_max: int = 20_000
    """Other requests without an answer; above it they are refused."""
    reads_at_once: int = 8
    """Reads whose entries are in memory, beside those that wait to be sent."""
    read_bytes_max: int = 8 * MiB
    """Of one read; a client that asks for more gets what there is."""


async def serve_local(
    bookie: BookiePort, stream: FramedStream, limits: LocalLimits | None = None
) -> None:
    """Serve one connection until the client goes, or breaks the protocol. Adds that wait are done
    all the same. The caller closes the stream.
    """
    await _Session(bookie, stream, limits or LocalLimits()).run()


class _Session:
    def __init__(self, bookie: BookiePort, stream: FramedStream, limits: LocalLimits) -> None:
        self._bookie = bookie
        self._stream = stream
        self._limits = limits
        self._unanswered_bytes = 0
        self._answered = Wakeup()
        self._reads = trio.Semaphore(limits.reads_at_once)
        self._calls: dict[int, trio.CancelScope] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stream.run_writer)
            try:
                await self._serve(nursery)
            except (ConnectionLost, WireError) as error:
                _log.debug("%s: %s", self._stream.name, error)
            nursery.cancel_scope.cancel()

    async def _serve(self, nursery: trio.Nursery) -> None:
        received = frames.requests()
        while data := await self._stream.receive():
            for number, request, size in received.feed(data):
                if isinstance(request, frames.Add):
                    self._add(number, request, size)
                elif isinstance(request, frames.Cancel):
                    scope = self._calls.get(number)
                    if scope is not None:
                        scope.cancel()
                elif len(self._calls) >= self._limits.calls_max:
                    self._refuse(number, TooManyRequests("too many requests wait for answers"))
                else:
                    self._calls[number] = scope = trio.CancelScope()
                    nursery.start_soon(self._call, number, request, scope)
            await self._room()

    async def _room(self) -> None:
        while self._unanswered_bytes > self._limits.unanswered_bytes_max:
            await self._answered.wait()
        if not self._stream.writable:
            writable = trio.Event()
            self._stream.on_writable(writable.set)
            await writable.wait()

    def _add(self, number: int, add: frames.Add, size: int) -> None:
        left = len(add.packets)
        self._unanswered_bytes += size

        def done(first: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal left
            left -= count
            if not left:
                self._unanswered_bytes -= size
                self._answered.set()
            if error is None:
                self._stream.write(encode(number, frames.Added(first, count)))
            else:
                failed = frames.AddFailed(first, count, frames.kind_of(error), str(error))
                self._stream.write(encode(number, failed))

        self._bookie.add(
            add.ledger_id,
            add.master_key,
            add.first_entry_id,
            add.packets,
            done,
            recovery=add.recovery,
        )

    def _refuse(self, number: int, error: BookkeeperError) -> None:
        self._stream.write(encode(number, frames.Refused(frames.kind_of(error), str(error))))

    async def _call(self, number: int, request: frames.Call, scope: trio.CancelScope) -> None:
        try:
            with scope:
                frame = encode(number, await self._do(request))
                if len(frame) > frames.FRAME_BYTES_MAX:
                    raise StorageFailed(f"an answer of {len(frame)} bytes is too long")
                self._stream.write(frame)
        except BookkeeperError as error:
            self._refuse(number, error)
        finally:
            del self._calls[number]

    async def _do(self, request: frames.Call) -> frames.Result:
        bookie = self._bookie
        match request:
            case frames.Read(ledger_id, first, entries_max, bytes_max):
                bytes_max = min(bytes_max, self._limits.read_bytes_max)
                async with self._reads:
                    return frames.Packets(
                        await bookie.read(
                            ledger_id, first, entries_max=entries_max, bytes_max=bytes_max
                        )
                    )
            case frames.LastEntry(ledger_id):
                return frames.Packets([await bookie.last_entry(ledger_id)])
            case frames.WaitEntry(ledger_id, entry_id, previous_lac):
                return frames.Waited(*await bookie.wait_entry(ledger_id, entry_id, previous_lac))
            case frames.ReadLac(ledger_id):
                return frames.Lac(*await bookie.read_lac(ledger_id))
            case frames.Fence(ledger_id, master_key):
                return frames.Lac(*await bookie.fence(ledger_id, master_key))
            case frames.WriteLac(ledger_id, master_key, lac, packet):
                await bookie.write_lac(ledger_id, master_key, lac, packet)
            case frames.Force(ledger_id):
                await bookie.force(ledger_id)
            case frames.ListEntries(ledger_id):
                return frames.Ids(await bookie.list_entries(ledger_id))
            case frames.Info():
                return frames.Space(*await bookie.info())
        return frames.Done()

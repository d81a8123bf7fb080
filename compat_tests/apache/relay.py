"""A TCP relay before a server, whose connections a test cuts and whose answers it swallows."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio

CHUNK_BYTES = 65536


class Relay:
    """Start `serve` in a nursery; it answers the port."""

    def __init__(self, target_port: int) -> None:
        self.swallows = False
        """Whether what the server sends is lost."""
        self.delay_s = 0.0
        """How late the server's answers are."""
        self.is_holding = False
        """Whether an answer is kept since `hold`."""
        self._released = trio.Event()
        self._released.set()
        self._target_port = target_port
        self._is_cut = False
        self._scopes: set[trio.CancelScope] = set()

    async def serve(self, *, task_status: trio.TaskStatus[int]) -> None:
        """Relay until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port: int = listeners[0].socket.getsockname()[1]
        task_status.started(port)
        await trio.serve_listeners(self._relay, listeners)

    def cut(self) -> None:
        """End all connections, and take no more."""
        self._is_cut = True
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    def heal(self) -> None:
        """Take connections again."""
        self._is_cut = False

    def hold(self) -> None:
        """Keep what the server sends."""
        self._released = trio.Event()

    def release(self) -> None:
        """Send on what was kept."""
        self._released.set()

    async def _relay(self, client: trio.SocketStream) -> None:
        async with client:
            if self._is_cut:
                return
            with suppress(OSError):
                server = await trio.open_tcp_stream("127.0.0.1", self._target_port)
                async with server, trio.open_nursery() as nursery:
                    scope = nursery.cancel_scope
                    self._scopes.add(scope)
                    nursery.start_soon(self._pump, client, server, scope, False)
                    nursery.start_soon(self._pump, server, client, scope, True)
                self._scopes.discard(scope)

    async def _pump(
        self,
        source: trio.SocketStream,
        target: trio.SocketStream,
        scope: trio.CancelScope,
        is_answer: bool,
    ) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](math.inf)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver, receive, target)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await source.receive_some(CHUNK_BYTES):
                    if is_answer:
                        self.is_holding = not self._released.is_set()
                        await self._released.wait()
                    if not (is_answer and self.swallows):
                        late_s = self.delay_s if is_answer else 0.0
                        await send.send((trio.current_time() + late_s, bytes(data)))
            send.close()
        scope.cancel()

    async def _deliver(
        self, receive: trio.MemoryReceiveChannel[tuple[float, bytes]], target: trio.SocketStream
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for due, data in receive:
                if due > trio.current_time():
                    await trio.sleep_until(due)
                await target.send_all(data)


class RelayThread:
    """A relay in a thread of its own, before a server of processes; its port is `port`."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._relay = Relay(target_port)
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop = trio.Event()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run_in_thread, daemon=True)
        self._thread.start()
        self._ready.wait()
        self._check()

    def _run_in_thread(self) -> None:
        try:
            trio.run(self._run)
        except BaseException as error:
            self._failure = error
            self._ready.set()

    def _check(self) -> None:
        """A relay that ended by itself refuses all connections: say why, not only that."""
        if self._failure is not None:
            raise RuntimeError("the relay has ended") from self._failure

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self.port = await nursery.start(self._relay.serve)
            self._ready.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    def _call(self, call: Callable[[], None]) -> None:
        self._check()
        assert self._token is not None
        trio.from_thread.run_sync(call, trio_token=self._token)

    def delay(self, seconds: float) -> None:
        """The server's answers are so late."""
        self._relay.delay_s = seconds

    def hold(self) -> None:
        """What the server sends is kept: silence, but connections stay."""
        self._call(self._relay.hold)

    def release(self) -> None:
        """What was kept is sent on."""
        self._call(self._relay.release)

    def close(self) -> None:
        """Its connections end."""
        self._call(self._stop.set)
        self._thread.join()


@contextmanager
def relays(target_port: int, number: int) -> Iterator[list[RelayThread]]:
    """So many before one server."""
    found = [RelayThread(target_port) for _ in range(number)]
    try:
        yield found
    finally:
        for each in found:
            each.close()

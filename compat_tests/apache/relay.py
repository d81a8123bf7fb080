"""A TCP relay before a server, whose connections a test cuts and whose answers it swallows."""

from __future__ import annotations

from contextlib import suppress

import trio


class Relay:
    """Start `serve` in a nursery; it answers the port."""

    def __init__(self, target_port: int) -> None:
        self.swallows = False
        """Whether what the server sends is lost."""
        self.is_holding = False
        """Whether an answer is kept since `hold`."""
        self._released = trio.Event()
        self._released.set()
        self._target_port = target_port
        self._is_cut = False
        self._scopes: list[trio.CancelScope] = []

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
                    self._scopes.append(nursery.cancel_scope)
                    for source, target in ((client, server), (server, client)):
                        nursery.start_soon(self._pump, source, target, nursery.cancel_scope)

    async def _pump(
        self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        is_answer = source.socket.getpeername()[1] == self._target_port
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                if is_answer:
                    self.is_holding = not self._released.is_set()
                    await self._released.wait()
                if not (is_answer and self.swallows):
                    await target.send_all(data)
        scope.cancel()

"""Fair turns at a bounded resource: round robin over addresses, then over each address' users.

In a FIFO queue, one address that guesses passwords would keep all others waiting.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

IPV6_NETWORK_BITS = 64
"""An owner of one IPv6 address has its whole /64 network."""


class TooManyWaiting(Exception):
    """The queue of one address is full."""


class _Queue:
    """The waiting tasks of one address, by user."""

    def __init__(self) -> None:
        self.users: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        self.size = 0


class Turns:
    """Hands out slots; a free one goes to the address that has waited longest for its turn."""

    def __init__(self, slots: int, waiting_max: int) -> None:
        """At most `waiting_max` tasks of one address may wait."""
        self._free = slots
        self._waiting_max = waiting_max
        self._queues: OrderedDict[str, _Queue] = OrderedDict()

    @asynccontextmanager
    async def turn(self, address: str, user: str) -> AsyncIterator[None]:
        """Hold a slot while the context is open. Raises TooManyWaiting."""
        await self._take(_origin(address), user)
        try:
            yield
        finally:
            self._give()

    async def _take(self, origin: str, user: str) -> None:
        if self._free:
            self._free -= 1
            return
        queue = self._queues.get(origin)
        if queue is not None and queue.size >= self._waiting_max:
            raise TooManyWaiting(f"{queue.size} of its address wait")
        if queue is None:
            queue = self._queues[origin] = _Queue()
        its_turn = trio.Event()
        queue.users.setdefault(user, deque()).append(its_turn)
        queue.size += 1
        try:
            await its_turn.wait()
        except BaseException:
            if its_turn.is_set():
                self._give()  # granted just before the cancellation
            else:
                self._leave(origin, user, its_turn)
            raise

    def _give(self) -> None:
        """Pass the slot to the next waiting task."""
        if not self._queues:
            self._free += 1
            return
        origin, queue = self._queues.popitem(last=False)
        user, waiting = queue.users.popitem(last=False)
        waiting.popleft().set()
        queue.size -= 1
        if waiting:
            queue.users[user] = waiting
        if queue.size:
            self._queues[origin] = queue

    def _leave(self, origin: str, user: str, its_turn: trio.Event) -> None:
        queue = self._queues[origin]
        waiting = queue.users[user]
        waiting.remove(its_turn)
        queue.size -= 1
        if not waiting:
            del queue.users[user]
        if not queue.size:
            del self._queues[origin]


def _origin(address: str) -> str:
    """The part of `host:port` that identifies a peer: the host, or its IPv6 network."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.version == 4:
        return host
    network = ipaddress.ip_network((int(found), IPV6_NETWORK_BITS), strict=False)
    return str(network.network_address)

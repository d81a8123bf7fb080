"""Who may use a scarce thing next, when many ask: addresses in turn, and the users of each in turn.

A queue in order of arrival would let one address that guesses passwords keep all others waiting.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

IPV6_NETWORK_BITS = 64
"""Whoever has one IPv6 address has those of its network."""


class TooManyWaiting(Exception):
    """As many of one address wait as may."""


class _Queue:
    """What waits of one address, by user."""

    def __init__(self) -> None:
        self.users: OrderedDict[str, deque[trio.Event]] = OrderedDict()
        self.size = 0


class Turns:
    """So many slots; a free one goes to the address that has waited longest for its turn."""

    def __init__(self, slots: int, waiting_max: int) -> None:
        """Of each address `waiting_max` may wait."""
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
                self._give()  # it came in the moment of the cancellation
            else:
                self._leave(origin, user, its_turn)
            raise

    def _give(self) -> None:
        """The slot goes on to the next one."""
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
    """Of `host:port`, what counts as one peer."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if found.version == 4:
        return host
    network = ipaddress.ip_network((int(found), IPV6_NETWORK_BITS), strict=False)
    return str(network.network_address)

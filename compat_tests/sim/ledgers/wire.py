"""The port from one client's process to one bookie, through the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import trio

from geminga_bookie.errors import BookieUnavailable, BookkeeperError, RequestTimeout
from geminga_bookie.port import AddDone, BookieInfo, BookiePort, LacAnswer
from geminga_runtime.waiters import Promise

from .bookies import Life, Resettable
from .network import Network

ResultT = TypeVar("ResultT")


class Machine(Protocol):
    """A bookie's: `bookies.BookieProcess`."""

    @property
    def bookie_id(self) -> str:
        """Its name in the network too."""

    @property
    def life(self) -> Life | None:
        """None while it is away."""

    @property
    def refuses(self) -> bool:
        """Whether connections are refused meanwhile, rather than never answered."""

    @property
    def wires(self) -> list[Resettable]:
        """Its connections."""

    @property
    def acknowledged(self) -> dict[int, set[int]]:
        """Entries of each ledger that some client was told are stored."""


class Wire:
    """A `BookiePort`. What is lost on the way is answered by a time-out; what was under way when
    the connection ended fails at once, and may have been executed."""

    def __init__(self, owner: str, bookie: Machine, network: Network, timeout_s: float) -> None:
        self._owner = owner
        self._bookie = bookie
        self._network = network
        self._timeout_s = timeout_s
        self._open: dict[object, Callable[[BookkeeperError], None]] = {}
        bookie.wires.append(self)

    @property
    def bookie_id(self) -> str:
        """See `BookiePort.bookie_id`."""
        return self._bookie.bookie_id

    def reset(self) -> None:
        """The connection is lost; the client hears of it."""
        error = BookieUnavailable(f"{self.bookie_id}: the connection was lost")
        open_now, self._open = self._open, {}
        if self._owner in self._network.dead:
            return
        for fail in open_now.values():
            fail(error)

    def _send(
        self,
        deliver: Callable[[Life], None],
        fail: Callable[[BookkeeperError], None],
        kind: str,
    ) -> object:
        """Send a request; `fail` is called unless `_settle` comes first."""
        key = object()
        network = self._network
        self._open[key] = fail

        def arrive() -> None:
            life = self._bookie.life
            if life is not None:
                deliver(life)
            elif self._bookie.refuses:
                network.send(self.bookie_id, self._owner, refused, kind)

        def refused() -> None:
            if self._settle(key):
                fail(BookieUnavailable(f"{self.bookie_id} is not there"))

        def expire() -> None:
            if self._settle(key) and self._owner not in network.dead:
                fail(RequestTimeout(f"{self.bookie_id}: no answer in {self._timeout_s} s"))

        network.send(self._owner, self.bookie_id, arrive, kind)
        self._later(self._timeout_s, expire)
        return key

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        self._network.timeline.at(trio.current_time() + wait_s, call)

    def _settle(self, key: object) -> bool:
        return self._open.pop(key, None) is not None

    def add(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        """See `BookiePort.add`."""
        kind = "add again" if recovery else "add"
        left = len(packets)
        packets = list(packets)

        def answered(first: int, count: int, error: BookkeeperError | None) -> None:
            self._network.send(
                self.bookie_id, self._owner, lambda: arrive(first, count, error), kind
            )

        def arrive(first: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal left
            if key in self._open:
                if error is None:
                    known = self._bookie.acknowledged.setdefault(ledger_id, set())
                    known.update(range(first, first + count))
                left -= count
                if left <= 0 or error is not None:
                    self._settle(key)
                done(first, count, error)

        def deliver(life: Life) -> None:
            self._network.log.add(
                f"{self._owner} adds {ledger_id}:{first_entry_id}+{len(packets)} to "
                f"{self.bookie_id}{' again' if recovery else ''}"
            )
            life.port.add(
                ledger_id, master_key, first_entry_id, packets, answered, recovery=recovery
            )

        def fail(error: BookkeeperError) -> None:
            done(first_entry_id, len(packets), error)

        key = self._send(deliver, fail, kind)

    async def _ask(self, work: Callable[[BookiePort], Awaitable[ResultT]], what: str) -> ResultT:
        kind = what.split()[0]
        answer = Promise[ResultT]()
        network = self._network

        async def serve(life: Life) -> None:
            network.log.add(f"{self._owner} asks {self.bookie_id} {what}")
            try:
                result = await work(life.port)
            except BookkeeperError as error:
                failed = error
                network.send(self.bookie_id, self._owner, lambda: settle(failed), kind)
            else:
                network.send(self.bookie_id, self._owner, lambda: settle(None, result), kind)

        def settle(error: BookkeeperError | None, *result: ResultT) -> None:
            if self._settle(key):
                if error is not None:
                    answer.reject(error)
                else:
                    answer.resolve(*result)

        key = self._send(lambda life: life.serve(serve), answer.reject, kind)
        return await answer.wait()

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """See `BookiePort.read`."""
        return await self._ask(
            lambda port: port.read(
                ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
            ),
            f"read {ledger_id}:{first_entry_id}",
        )

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        """See `BookiePort.fence`."""
        return await self._ask(lambda port: port.fence(ledger_id, master_key), f"fence {ledger_id}")

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        """See `BookiePort.read_lac`."""
        return await self._ask(lambda port: port.read_lac(ledger_id), f"LAC {ledger_id}")

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        """See `BookiePort.write_lac`."""
        await self._ask(
            lambda port: port.write_lac(ledger_id, master_key, lac, packet), f"set LAC {ledger_id}"
        )

    async def last_entry(self, ledger_id: int) -> bytes:
        """See `BookiePort.last_entry`."""
        return await self._ask(lambda port: port.last_entry(ledger_id), f"last of {ledger_id}")

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        """See `BookiePort.wait_entry`."""
        return await self._ask(
            lambda port: port.wait_entry(ledger_id, entry_id, previous_lac), f"wait {ledger_id}"
        )

    async def force(self, ledger_id: int) -> None:
        """See `BookiePort.force`."""
        await self._ask(lambda port: port.force(ledger_id), f"force {ledger_id}")

    async def list_entries(self, ledger_id: int) -> list[int]:
        """See `BookiePort.list_entries`."""
        return await self._ask(lambda port: port.list_entries(ledger_id), f"list {ledger_id}")

    async def info(self) -> BookieInfo:
        """See `BookiePort.info`."""
        return await self._ask(lambda port: port.info(), "info")

"""A bookie without files, for tests and `--in-memory`: the same contract, not durable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import trio

from geminga_bookie.errors import (
    BookkeeperError,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
)
from geminga_bookie.lac import NO_LAC, LacWaiters, explicit_lac, packet_lac
from geminga_bookie.options import LiveLedgers
from geminga_bookie.port import (
    AddDone,
    BookieInfo,
    Completion,
    LacAnswer,
    check_add,
    check_lac,
    check_ledger,
    check_read,
    complete,
)


class _Ledger:
    """Entries and state of one ledger."""

    __slots__ = ("entries", "explicit_packet", "fenced", "lac", "master_key")

    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.entries: dict[int, bytes] = {}
        self.fenced = False
        self.lac = NO_LAC
        self.explicit_packet: bytes | None = None

    def answer(self) -> LacAnswer:
        last = self.entries[max(self.entries)] if self.entries else None
        return LacAnswer(last, self.explicit_packet)


class MemoryBookie:
    """A `BookiePort` that keeps packets in dicts.

    `done` callbacks come in a later turn of the scheduler, one for each completed run, as with a
    journal. `collect_garbage` drops ledgers without metadata, which bounds the memory.
    """

    def __init__(self, bookie_id: str = "127.0.0.1:3181") -> None:
        self.bookie_id = bookie_id
        self._ledgers: dict[int, _Ledger] = {}
        self._waiters = LacWaiters()
        self._completed: list[Completion] = []

    def _handle(self, ledger_id: int, master_key: bytes) -> _Ledger:
        check_ledger(ledger_id, master_key)
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger(master_key)
        elif ledger.master_key != master_key:
            raise UnauthorizedAccess(f"wrong master key for ledger {ledger_id}")
        return ledger

    def _known(self, ledger_id: int) -> _Ledger:
        check_ledger(ledger_id)
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            raise NoSuchLedger(f"ledger {ledger_id}")
        return ledger

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
        error: BookkeeperError | None = None
        try:
            check_add(ledger_id, first_entry_id, len(packets), sum(map(len, packets)))
            ledger = self._handle(ledger_id, master_key)
        except BookkeeperError as refusal:
            error = refusal
        else:
            if ledger.fenced and not recovery:
                error = LedgerFenced(f"ledger {ledger_id}")
            elif packets:
                last = first_entry_id + len(packets)
                ledger.entries.update(zip(range(first_entry_id, last), packets, strict=True))
                self._advance(ledger_id, ledger, packet_lac(packets[-1]))
        if not self._completed:
            trio.lowlevel.current_trio_token().run_sync_soon(self._complete)
        self._completed.append(Completion(done, first_entry_id, len(packets), error))

    def _complete(self) -> None:
        completed, self._completed = self._completed, []
        complete(completed)

    def _advance(self, ledger_id: int, ledger: _Ledger, lac: int) -> None:
        if lac > ledger.lac:
            ledger.lac = lac
            self._waiters.wake(ledger_id)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """See `BookiePort.read`; never suspends."""
        check_read(ledger_id, first_entry_id)
        entries = self._known(ledger_id).entries
        packet = entries.get(first_entry_id)
        if packet is None:
            raise NoSuchEntry(f"entry {ledger_id}:{first_entry_id}")
        found = [packet]
        size = len(packet)
        for entry_id in range(first_entry_id + 1, first_entry_id + entries_max):
            packet = entries.get(entry_id)
            if packet is None:
                break
            size += len(packet)
            if size > bytes_max:
                break
            found.append(packet)
        return found

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        """See `BookiePort.fence`."""
        ledger = self._handle(ledger_id, master_key)
        ledger.fenced = True
        await trio.lowlevel.checkpoint()
        return ledger.answer()

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        """See `BookiePort.read_lac`; never suspends."""
        return self._known(ledger_id).answer()

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        """See `BookiePort.write_lac`."""
        check_ledger(ledger_id, master_key)
        check_lac(ledger_id, lac, packet)
        ledger = self._handle(ledger_id, master_key)
        if lac > explicit_lac(ledger.explicit_packet or b""):
            ledger.explicit_packet = packet
        self._advance(ledger_id, ledger, lac)
        await trio.lowlevel.checkpoint()

    async def last_entry(self, ledger_id: int) -> bytes:
        """See `BookiePort.last_entry`; never suspends."""
        packet = self._known(ledger_id).answer().last_packet
        if packet is None:
            raise NoSuchEntry(f"ledger {ledger_id} is empty")
        return packet

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        """See `BookiePort.wait_entry`."""
        check_read(ledger_id, entry_id)
        while (ledger := self._known(ledger_id)).lac <= previous_lac:
            await self._waiters.park(ledger_id)
        packet = ledger.entries.get(entry_id) if entry_id <= ledger.lac else None
        return packet, ledger.lac

    async def force(self, ledger_id: int) -> None:
        """See `BookiePort.force`: returns after the `done` of earlier adds."""
        passed = trio.Event()
        trio.lowlevel.current_trio_token().run_sync_soon(passed.set)
        await passed.wait()

    async def list_entries(self, ledger_id: int) -> list[int]:
        """See `BookiePort.list_entries`."""
        return sorted(self._known(ledger_id).entries)

    async def info(self) -> BookieInfo:
        """See `BookiePort.info`: it has no disk."""
        await trio.lowlevel.checkpoint()
        return BookieInfo(0, 0)

    async def collect_garbage(self, live_ledgers: LiveLedgers) -> list[int]:
        """Drop ledgers without metadata; returns their ids (BK-06). Its ledgers are listed before
        the metadata, so that a new ledger is never taken for garbage.
        """
        garbage = set(self._ledgers)
        async for ledger_id in live_ledgers():
            garbage.discard(ledger_id)
        for ledger_id in garbage:
            del self._ledgers[ledger_id]
            self._waiters.wake(ledger_id)
        return sorted(garbage)

    async def run_gc(self, live_ledgers: LiveLedgers, interval_s: float) -> None:
        """Collect garbage every `interval_s`, for ever; never with an infinite interval."""
        while not math.isinf(interval_s):
            await trio.sleep(interval_s)
            await self.collect_garbage(live_ledgers)
        await trio.sleep_forever()

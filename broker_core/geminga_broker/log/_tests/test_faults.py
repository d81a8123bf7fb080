"""Crashes and failures of the metadata store and the bookie at every step of a script, and the
invariants after them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from geminga_bookie._tests.asked_bookie import Add, AskedBookie, nobody
from geminga_bookie.errors import StorageFailed
from geminga_broker.log._tests.world import NAME, Answers, World, message, text_of
from geminga_broker.log.api import Ack, LogError
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import StoreUnavailable


class Fault(Enum):
    """The event at the chosen step."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    FAIL_BEFORE = "fails, not done"
    FAIL_AFTER = "fails, done all the same"


class Faults:
    """Counts steps, and injects the fault at one of them."""

    def __init__(self, fault: Fault | None = None, at: int = 0) -> None:
        self.fault = fault
        self.at = at
        self.steps = 0
        self.crash: Callable[[], None] | None = None
        self._died = False

    @property
    def dead(self) -> bool:
        """Whether it crashed and was not restarted yet."""
        return self._died and self.fault is not None

    def strikes(self) -> Fault | None:
        self.steps += 1
        return self.fault if self.steps == self.at else None

    async def die(self) -> None:
        assert self.crash is not None
        self.crash()
        self._died = True
        await trio.lowlevel.checkpoint()
        # A shielded operation must not wait for ever.
        raise StoreUnavailable("dead")


class FaultyStore(SteppedStore):
    """A store whose calls may crash, or fail with an unknown outcome."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        if self.faults.dead:
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("dead")
        fault = self.faults.strikes()
        if fault is Fault.CRASH_BEFORE:
            await self.faults.die()
        if fault is Fault.FAIL_BEFORE:
            raise StoreUnavailable("not done")
        yield
        if fault is Fault.CRASH_AFTER:
            await self.faults.die()
        if fault is Fault.FAIL_AFTER:
            raise StoreUnavailable("done")


class FaultyBookie(AskedBookie):
    """A bookie whose adds may crash or fail."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults
        self.dead = False

    def take(self, add: Add) -> None:
        fault = self.faults.strikes()
        if self.dead:
            return
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            assert self.faults.crash is not None
            self.faults.crash()
            self.dead = True
            if fault is Fault.CRASH_BEFORE:
                return
        if fault is Fault.FAIL_BEFORE:
            add.answer(StorageFailed("disk"))
            return
        done = add.done
        if fault is Fault.FAIL_AFTER:

            def answer(first: int, count: int, _: object) -> None:
                done(first, count, StorageFailed("disk"))

            add = replace(add, done=answer)
        if self.dead:
            add = replace(add, done=nobody)  # the caller is gone
        self.store(add)


OPTIONS = LogOptions(
    rollover=Rollover(entries_max=4, min_s=0),
    retention=Retention(-1, -1),
    cursors=CursorOptions(ledger_entries_max=3),
    broker_entry_metadata=True,
)


class Witness:
    """Promises to clients of the log."""

    def __init__(self, *, leaves_some: bool = True) -> None:
        """Some messages are left unacknowledged, or all ledgers but the last are consumed."""
        self.leaves_some = leaves_some
        self.sent: list[str] = []
        self.confirmed: list[str] = []
        self.acked: set[str] = set()
        self.durably_acked: set[str] = set()
        self.texts: dict[Position, str] = {}

    async def publish(self, log: TopicLog, count: int) -> None:
        texts = [f"m{len(self.sent) + n}" for n in range(count)]
        self.sent += texts
        answers = Answers()
        log.append([(message(text), 1) for text in texts], answers)
        await answers.wait(count)
        at = 0
        for first, size, error in answers.runs:
            if error is None:
                for n in range(size):
                    position = first._replace(entry_id=type(first.entry_id)(first.entry_id + n))
                    self.texts[position] = texts[at + n]
                self.confirmed += texts[at : at + size]
            at += size

    async def run(self, broker: ManagedLedgerFactory) -> None:
        """The script. It continues after errors of the log, which a client would get."""
        try:
            log = await broker.open(NAME)
        except LogError:
            return
        try:
            cursor = await log.open_cursor("s", initial=EARLIEST)
        except LogError:
            return
        for round_number in range(6):
            await self.publish(log, 3)
            await trio.sleep(0.01)
            try:
                wanted = 2 if self.leaves_some else 10
                entries = await cursor.read(entries_max=wanted, bytes_max=1 << 20)
            except LogError:
                entries = []
            chosen = entries[round_number % 2 :] if self.leaves_some else entries
            cursor.ack(Ack(entry.position) for entry in chosen)
            self.acked.update(text_of(entry) for entry in chosen)
            known = set(self.acked)
            try:
                await cursor.persist()
            except LogError:
                continue
            self.durably_acked = known
            if round_number == 3:
                await trio.sleep(2)
        await log.close()

    async def check(self, broker: ManagedLedgerFactory) -> None:
        """Invariants for the log's next owner."""
        log = await broker.open(NAME)
        found: list[str] = []
        indexes: list[int] = []
        reader = log.open_reader("check", EARLIEST)
        while entries := await reader.read(entries_max=5, bytes_max=1 << 20):
            found += [text_of(entry) for entry in entries]
            for entry in entries:
                assert self.texts.get(entry.position, text_of(entry)) == text_of(entry)
                assert entry.broker_metadata is not None
                indexes.append(entry.broker_metadata.index)
        assert len(set(found)) == len(found), "an entry stands twice"
        assert found == sorted(found, key=self.sent.index), "out of order"
        assert set(self.confirmed) <= set(found), "a confirmed entry is lost"
        assert indexes == list(range(len(found))), "indexes are not contiguous"
        cursor = await log.open_cursor("s", initial=EARLIEST)
        left: list[str] = []
        while entries := await cursor.read(entries_max=5, bytes_max=1 << 20):
            left += [text_of(entry) for entry in entries]
        gone = set(found) - set(left)
        assert gone <= self.acked, "an acknowledgement is invented"
        assert self.durably_acked <= gone, "a durable acknowledgement is lost"
        await self.publish(log, 5)
        assert await_texts(await cursor.read(entries_max=10, bytes_max=1 << 20))

    async def leftovers(self, broker: ManagedLedgerFactory) -> int:
        """Ledgers that remain when the log is deleted."""
        await broker.delete(NAME)
        assert await broker.names("public/default/persistent") == []
        return len([ledger_id async for ledger_id in broker.client.ledgers()])


def await_texts(entries: Sequence[object]) -> bool:
    return len(entries) > 0


async def play(fault: Fault | None, at: int, options: LogOptions) -> tuple[int, int]:
    """One life with a fault, then checks; returns (steps of the script, ledgers leaked)."""
    faults = Faults(fault, at)
    bookie = FaultyBookie(faults)
    store = FaultyStore(faults)
    world = World(bookie, store)
    witness = Witness()
    with trio.CancelScope() as scope:
        faults.crash = scope.cancel
        async with world.broker(options, crash=True) as broker:
            await witness.run(broker)
    steps = faults.steps
    faults.fault = None
    bookie.dead = False
    async with world.broker(options) as broker:
        await witness.check(broker)
    async with world.broker(options) as broker:
        return steps, await witness.leftovers(broker)


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
async def test_every_step_may_be_the_last_or_fail(fault: Fault, autojump_clock: MockClock) -> None:
    steps, leaked = await play(None, 0, OPTIONS)
    assert steps > 40
    assert leaked == 0
    for at in range(1, steps + 1):
        _, leaked = await play(fault, at, OPTIONS)
        assert leaked <= 1, f"{leaked} ledgers leaked by a fault at step {at}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
async def test_trimming_at_every_step(fault: Fault, autojump_clock: MockClock) -> None:
    """Consumed ledgers are deleted meanwhile; unacknowledged entries stay."""
    options = replace(OPTIONS, retention=Retention())
    untrimmed, _ = await play(None, 0, OPTIONS)
    steps, leaked = await play_trimmed(None, 0, options)
    assert steps > untrimmed, "nothing was trimmed"
    assert leaked == 0
    for at in range(1, steps + 1):
        _, leaked = await play_trimmed(fault, at, options)
        assert leaked <= 1, f"{leaked} ledgers leaked by a fault at step {at}"


async def play_trimmed(fault: Fault | None, at: int, options: LogOptions) -> tuple[int, int]:
    faults = Faults(fault, at)
    bookie = FaultyBookie(faults)
    world = World(bookie, FaultyStore(faults))
    witness = Witness(leaves_some=False)
    with trio.CancelScope() as scope:
        faults.crash = scope.cancel
        async with world.broker(options, crash=True) as broker:
            await witness.run(broker)
    steps = faults.steps
    faults.fault = None
    bookie.dead = False
    async with world.broker(options) as broker:
        log = await broker.open(NAME)
        known = {ledger.ledger_id for ledger in log.context.chain}
        stored = {ledger_id async for ledger_id in broker.client.ledgers()}
        assert known <= stored, "the chain names ledgers that are deleted"
        if "s" in log.cursors:
            left: list[str] = []
            while entries := await log.cursors["s"].read(entries_max=5, bytes_max=1 << 20):
                left += [text_of(entry) for entry in entries]
            assert set(witness.confirmed) - witness.acked <= set(left)
            assert not witness.durably_acked & set(left)
        await witness.publish(log, 2)
    async with world.broker(options) as broker:
        return steps, await witness.leftovers(broker)

"""Reads that wait for an entry, of all connections together."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import KEY, lac_packet, packet
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire._tests.clients import SlowBookie, adds, serving
from geminga_bookie.wire.session_limits import WAIT_BYTES, Shared
from geminga_bookie.wire.waiting import TICK_S, EntryWait, EntryWaits, Holder
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.bookkeeper import v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    EOK,
    ETOOMANYREQUESTS,
    READ_ENTRY,
    WRITE_LAC,
    ReadRequest,
)


@pytest.fixture
def bookie() -> SlowBookie:
    return SlowBookie()


def waiting(txn: int, *, ledger: int = 7, previous_lac: int = 0, timeout_ms: int = 50_000) -> bytes:
    """A read that waits."""
    request = v3.request(READ_ENTRY, txn)
    asked = request.readRequest
    asked.ledgerId, asked.entryId, asked.previousLAC = ledger, -1, previous_lac
    asked.timeOut, asked.flag = timeout_ms, ReadRequest.ENTRY_PIGGYBACK
    return v3.frame(request)


def telling(lac: int) -> bytes:
    told = v3.request(WRITE_LAC, 1 << 30)
    body = told.writeLacRequest
    body.ledgerId, body.lac, body.masterKey, body.body = 7, lac, KEY, lac_packet(7, lac)
    return v3.frame(told)


async def test_who_waits_most_is_refused(bookie: SlowBookie) -> None:
    """100 for all: the one with 90 makes room for the others, up to a fair share."""
    shared = Shared(bookie, waiting_bytes_max=100 * WAIT_BYTES)
    async with serving(bookie, shared=shared) as connect:
        greedy, others = connect(), [connect() for _ in range(4)]
        await greedy.send(adds(0, 2), *(waiting(txn) for txn in range(200)))
        refused = await greedy.responses(2 + 100)
        assert sum(answer.status == ETOOMANYREQUESTS for answer in refused) == 100
        assert shared.waits.count == 100
        for other in others:
            await other.send(*(waiting(txn) for txn in range(20)))
            await trio.testing.wait_all_tasks_blocked()
        taken = await greedy.responses(80)
        assert {answer.status for answer in taken} == {ETOOMANYREQUESTS}
        assert [answer.header.txnId for answer in taken] == list(range(99, 19, -1))
        late = connect()
        await late.send(*(waiting(txn) for txn in range(30)))
        await trio.testing.wait_all_tasks_blocked()
        assert shared.waits.count == 100
        await late.send(telling(1))
        answers = await late.responses(31)
        assert sum(answer.status == EOK for answer in answers) - 1 in (16, 17, 18, 19)
        assert shared.waits.count == 0


async def test_waits_end_by_entry_or_time(
    bookie: SlowBookie, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving(bookie) as connect:
        client = connect()
        await client.send(adds(0, 2))
        await client.responses(2)
        await client.send(waiting(1, timeout_ms=100), waiting(2, timeout_ms=2000), waiting(3))
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        (first,) = await client.responses(1)
        assert (first.header.txnId, first.readResponse.maxLAC) == (1, 0)
        assert 0.1 <= trio.current_time() - began <= 0.1 + 2 * TICK_S
        await client.send(waiting(4, timeout_ms=50))
        (fourth,) = await client.responses(1)
        assert fourth.header.txnId == 4
        assert trio.current_time() - began < 0.3, "an earlier one is seen at once"
        (second,) = await client.responses(1)
        assert second.header.txnId == 2
        await client.send(telling(1))
        found = {each.header.txnId: each for each in await client.responses(2)}
        said = found[3].readResponse
        assert (said.maxLAC, said.entryId, said.body) == (1, 1, packet(7, 1, 0))


async def test_each_waits_for_its_own_lac(bookie: SlowBookie) -> None:
    async with serving(bookie) as connect:
        client = connect()
        await client.send(adds(0, 9))
        await client.responses(9)
        for txn in (5, 3, 1, 6):
            await client.send(waiting(txn, previous_lac=txn + 6))
            await trio.testing.wait_all_tasks_blocked()
        await client.send(telling(8))
        answers = {each.header.txnId for each in await client.responses(2)}
        assert answers == {1, 1 << 30}
        await client.send(telling(12))
        answers = {each.header.txnId for each in await client.responses(3)}
        assert answers == {3, 5, 1 << 30}


async def test_unknown_ledgers_are_answered_at_once(bookie: SlowBookie) -> None:
    async with serving(bookie) as connect:
        client = connect()
        await client.send(*(waiting(txn, ledger=900 + txn) for txn in range(10)))
        await client.send(waiting(11, ledger=-5), waiting(12, ledger=5, previous_lac=-(1 << 63)))
        await client.send(waiting(13, ledger=5, previous_lac=(1 << 63) - 1))
        answers = await client.responses(13)
        assert EOK not in {answer.status for answer in answers}


@pytest.mark.slow
async def test_the_loop_is_not_held(bookie: SlowBookie) -> None:
    """Thousands come, are woken, and go: no turn of the scheduler does much."""
    shared = Shared(bookie, waiting_bytes_max=20_000 * WAIT_BYTES)

    def turn() -> None:
        turns.append(bookie.reads)
        bookie.reads = 0

    class Counting(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            turn()

    turns: list[int] = []
    bookie = CountingBookie()
    shared = Shared(bookie, waiting_bytes_max=20_000 * WAIT_BYTES)
    async with serving(bookie, shared=shared) as connect:
        clients = [connect() for _ in range(20)]
        await clients[0].send(adds(0, 2))
        await clients[0].responses(2)
        for client in clients:
            await client.send(*(waiting(txn) for txn in range(1000)))
        await trio.testing.wait_all_tasks_blocked()
        assert shared.waits.count == 20_000
        assert bookie.followers <= 1, "one task waits for all of a ledger"
        trio.lowlevel.add_instrument(Counting())
        await clients[0].send(telling(1))
        for client in clients[1:]:
            assert len(await client.responses(1000)) == 1000
        assert max(turns) <= 400
        await clients[0].responses(1001)
        for client in clients:
            await client.send(*(waiting(txn, previous_lac=9) for txn in range(1000)))
        await trio.testing.wait_all_tasks_blocked()
        assert shared.waits.count == 20_000
        for client in clients:
            await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (shared.waits.count, bookie.followers) == (0, 0)


class CountingBookie(MemoryBookie):
    """Counts what the connections ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.followers = 0

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        self.reads += 1
        self.followers += 1
        try:
            return await super().wait_entry(ledger_id, entry_id, previous_lac)
        finally:
            self.followers -= 1


@pytest.mark.parametrize("seed", range(rounds(40)))
async def test_a_life(seed: int, autojump_clock: object) -> None:
    """Each wait ends once: woken, refused, or forgotten with its connection; counts are true."""
    chance = random.Random(seed)
    bookie = SlowBookie()
    waits_max = chance.choice((5, 20, 100))
    waits = EntryWaits(bookie, waits_max)
    client_of: dict[Holder, list[int]] = {}
    ended: list[int] = []
    due: dict[int, Holder] = {}

    def add(holder: Holder, number: int) -> None:
        def end(*_: object) -> None:
            ended.append(number)
            due.pop(number)

        def woken(_is_there: bool) -> None:
            end()
            waits.answered(holder)

        wait = EntryWait(chance.randint(1, 3), chance.randint(-1, 9), woken, end)
        due[number] = holder
        if not waits.add(wait, holder, chance.choice((0.1, 1, 10))):
            end()
            assert waits.count >= waits_max
            most = max((each.count for each in client_of), default=0)
            assert holder.count + 1 >= most, "another one has more"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits.run)
        for number in range(400):
            kind = chance.randrange(20)
            if kind == 0 or not client_of:
                client_of[Holder()] = []
            holder = chance.choice(list(client_of))
            if kind == 1:
                waits.leave(holder)
                del client_of[holder]
                for each in [each for each, of in due.items() if of is holder]:
                    del due[each]
            elif kind == 2:
                await bookie_takes(bookie, chance.randint(1, 3))
            elif kind == 3:
                await trio.sleep(chance.choice((0, 0.05, 0.5)))
            else:
                add(holder, number)
            assert waits.count == sum(each.count for each in client_of) == len(due)
            assert waits._highest == max((each.count for each in client_of), default=0)
            assert waits.count <= waits_max
        await trio.sleep(11)
        assert due == {}
        assert len(set(ended)) == len(ended)
        assert waits.count == 0
        assert not waits._ticks
        assert not waits._ledgers
        nursery.cancel_scope.cancel()


async def bookie_takes(bookie: SlowBookie, ledger_id: int) -> None:
    """The next entry of a ledger, which confirms the one before."""
    ledger = bookie._ledgers.get(ledger_id)
    first = max(ledger.entries) + 1 if ledger is not None else 0
    stored = trio.Event()

    def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
        assert error is None
        stored.set()

    bookie.add(ledger_id, KEY, first, [packet(ledger_id, first, first - 1)], done)
    await stored.wait()

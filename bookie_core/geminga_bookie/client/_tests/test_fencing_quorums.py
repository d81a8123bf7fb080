"""Recovery and reading where bookies were not fenced, are away or damaged (BK-22, BK-23)."""

from __future__ import annotations

import random
from dataclasses import replace

from geminga_bookie._tests.asked_bookie import Add
from geminga_bookie.client._tests.test_client import settle
from geminga_bookie.client._tests.test_recovery_quorums import DIGEST, Ensemble, Member, add
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import BookkeeperError, UnknownLedgerState
from geminga_bookie.port import LacAnswer
from geminga_runtime.metadata.memory import MemoryMetadataStore


class Delayed(Member):
    """A bookie that fencing doesn't reach at first, as little as the writer's last add."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(bookie_id)
        self.loses_fences = 0
        self.is_delayed = False
        self.delayed: list[Add] = []

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        if self.loses_fences:
            self.loses_fences -= 1
            raise UnknownLedgerState(f"{self.bookie_id}: the connection was lost")
        return await super().fence(ledger_id, master_key)

    def take(self, add: Add) -> None:
        if self.is_delayed and not add.recovery:
            self.delayed.append(add)
        else:
            super().take(add)

    def deliver(self) -> None:
        self.is_delayed = False
        for each in self.delayed:
            self.take(each)


async def test_a_bookie_that_is_not_fenced_rules_nothing_out() -> None:
    """Its answer "no such entry" may be wrong a moment later: it still takes the writer's add. Two
    of three are fenced, one of them with the entries: it shows the last one, and is away when the
    one before is read.
    """
    members = [Delayed(f"b{n}:3181") for n in range(3)]
    client = BookkeeperClient(KnownBookies(members), MemoryMetadataStore())
    writer = await client.create(LedgerOptions(3, 3, 2))
    await append_durably(writer, [(b"a",)])
    await settle()
    has, lost, late = members
    lost.takes = 0
    late.is_delayed = True
    heard: list[BookkeeperError | None] = []
    writer.append([(b"b",), (b"c",)], lambda _first, _count, error: heard.append(error))
    await settle()
    assert not heard
    late.loses_fences = 1
    has.fails_reads = True
    end = None
    try:
        end = (await client.open(writer.ledger_id, b"", recover=True)).last_add_confirmed
    except UnknownLedgerState:
        pass  # a later try may succeed
    late.deliver()
    await settle()
    if heard == [None]:
        assert end != 0, "the writer was told that entries 1 and 2 are stored"
    has.fails_reads = False
    reader = await client.open(writer.ledger_id, b"", recover=True)
    if heard == [None]:
        assert reader.last_add_confirmed == 2


async def test_the_last_fragment_is_asked_for_the_lac() -> None:
    ledger = Ensemble(random.Random(0), (2, 2, 2))
    await ledger._make()
    store = LedgerMetadataStore(ledger.store)
    known = await store.read(ledger.ledger_id)
    fresh = [Member("n0:3181"), Member("n1:3181")]
    client = BookkeeperClient(KnownBookies([*ledger.members, *fresh]), ledger.store)
    await store.update(
        known,
        replace(
            known.metadata,
            ensembles={
                0: tuple(b.bookie_id for b in ledger.members),
                2: tuple(b.bookie_id for b in fresh),
            },
        ),
    )
    for entry_id in range(5):
        for bookie in ledger.members if entry_id < 2 else fresh:
            packet = DIGEST.packet(ledger.ledger_id, entry_id, entry_id - 1, entry_id + 1, [b"x"])
            await add(bookie, ledger.ledger_id, entry_id, packet)
    reader = await client.open(ledger.ledger_id, b"", recover=False)
    assert reader.last_add_confirmed == 3


async def test_a_damaged_copy_is_read_from_the_next_replica() -> None:
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    await ledger.write(random.Random(0), 6, 1.0)
    for entry_id in range(6):
        for member in ledger.members:
            await add(member, ledger.ledger_id, entry_id, ledger.contents[entry_id])
    assert await ledger.recovered() == 5
    entries = ledger.members[0]._ledgers[ledger.ledger_id].entries
    entries[3] = entries[3][:-1] + b"?"
    reader = await ledger.client.open(ledger.ledger_id, b"", recover=False)
    got = await reader.read(0, 5)
    assert [bytes(each) for each in got] == [b"%d" % n for n in range(6)]


async def test_one_bookie_away_does_not_stop_an_open_without_recovery() -> None:
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    await ledger.write(random.Random(0), 4, 1.0)
    client = BookkeeperClient(KnownBookies(ledger.members[1:]), ledger.store)
    reader = await client.open(ledger.ledger_id, b"", recover=False)
    assert reader.last_add_confirmed >= 0

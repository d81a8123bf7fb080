"""Recovery of ledgers on several bookies, some of them away (BK-23): what was confirmed is kept,
and the end is never guessed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import trio

from geminga_bookie._tests.asked_bookie import Add, AskedBookie, nobody
from geminga_bookie.client._tests.test_client import settle
from geminga_bookie.client.api import LedgerMetadata, LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.client.placement import write_set
from geminga_bookie.errors import (
    BookkeeperError,
    LedgerFenced,
    StorageFailed,
    UnknownLedgerState,
)
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import LacAnswer
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest
from geminga_runtime._tests.scheduling import scheduled_by
from geminga_runtime.metadata.memory import MemoryMetadataStore

KEY = packets.master_key(b"")
DIGEST = Digest()


class Member(AskedBookie):
    """A bookie that may be away: it answers with errors, or not at all."""

    def __init__(self, bookie_id: str) -> None:
        super().__init__(bookie_id)
        self.is_away = False
        self.is_silent = False
        self.fails_reads = False
        self.takes = -1
        """So many runs of a writer; -1: all."""
        self.answers = True
        self.turns = 0
        """Of the scheduler, before it answers."""

    async def _answering(self) -> None:
        for _ in range(self.turns):
            await trio.lowlevel.checkpoint()
        if self.is_silent:
            await trio.sleep_forever()
        if self.is_away:
            raise UnknownLedgerState(f"{self.bookie_id} is away")

    def take(self, add: Add) -> None:
        if self.takes == 0 and not add.recovery:
            return  # the connection is lost: nobody hears of it
        self.takes -= 1
        super().take(add if self.answers else replace(add, done=nobody))

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        await self._answering()
        return await super().fence(ledger_id, master_key)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        await self._answering()
        if self.fails_reads:
            raise StorageFailed(f"{self.bookie_id}: the disk")
        return await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )


class Ensemble:
    """An open ledger as a writer left it: each entry on some of its bookies."""

    def __init__(self, chance: random.Random, sizes: tuple[int, int, int] | None = None) -> None:
        ensemble = chance.randint(1, 5)
        write = chance.randint(1, ensemble)
        self.sizes = sizes or (ensemble, write, chance.randint(1, write))
        self.members = [Member(f"b{n}:3181") for n in range(self.sizes[0])]
        self.store = MemoryMetadataStore()
        self.client = BookkeeperClient(KnownBookies(self.members), self.store)
        self.ledger_id = 0
        self.confirmed = -1
        self.contents: list[bytes] = []

    async def write(self, chance: random.Random, entries: int, share: float) -> None:
        """Make the ledger; each bookie gets an entry with that chance."""
        _, write_quorum, ack_quorum = self.sizes
        await self._make()
        has_gap = False
        for entry_id in range(entries):
            lac = chance.randint(-1, self.confirmed)
            content = b"%d" % entry_id
            packet = DIGEST.packet(self.ledger_id, entry_id, lac, len(content), [content])
            self.contents.append(packet)
            copies = 0
            for index in write_set(entry_id, self.sizes[0], write_quorum):
                if chance.random() < share:
                    copies += 1
                    await add(self.members[index], self.ledger_id, entry_id, packet)
            has_gap |= copies < ack_quorum
            if not has_gap:
                self.confirmed = entry_id

    async def _make(self) -> None:
        ledgers = LedgerMetadataStore(self.store)
        self.ledger_id = await ledgers.next_ledger_id()
        ensemble, write_quorum, ack_quorum = self.sizes
        options = LedgerOptions()
        await ledgers.create(
            LedgerMetadata(
                self.ledger_id, ensemble, write_quorum, ack_quorum, LedgerState.OPEN, -1, 0,
                options.digest_type, b"", {0: tuple(each.bookie_id for each in self.members)},
                {}, 0,
            )
        )  # fmt: skip

    async def recovered(self) -> int:
        """The last entry. Raises BookkeeperError."""
        reader = await self.client.open(self.ledger_id, b"", recover=True)
        return reader.last_add_confirmed

    async def check(self, last: int) -> None:
        """All up to that entry is on its whole write quorum; the old writer confirms nothing."""
        assert last >= self.confirmed, "what was confirmed is lost"
        ensemble, write_quorum, ack_quorum = self.sizes
        for entry_id in range(last + 1):
            for index in write_set(entry_id, ensemble, write_quorum):
                stored = self.members[index]._ledgers[self.ledger_id].entries
                if entry_id > self.confirmed:
                    assert stored[entry_id] == self.contents[entry_id]
        for start in range(ensemble):
            taken = 0
            for index in write_set(start, ensemble, write_quorum):
                try:
                    await add(self.members[index], self.ledger_id, last + 1 + start, b"late")
                except LedgerFenced:
                    continue
                taken += 1
            assert taken < ack_quorum, "the old writer still gets an ack quorum"


async def add(bookie: MemoryBookie, ledger_id: int, entry_id: int, packet: bytes) -> None:
    outcome: list[BookkeeperError | None] = []
    passed = trio.Event()

    def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
        outcome.append(error)
        passed.set()

    bookie.add(ledger_id, KEY, entry_id, [packet], done)
    await passed.wait()
    if outcome[0] is not None:
        raise outcome[0]


@pytest.mark.parametrize("seed", range(rounds(300)))
async def test_what_was_confirmed_survives(seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ensemble(chance)
    await ledger.write(chance, chance.randint(0, 12), chance.choice((0.4, 0.7, 0.95)))
    for member in ledger.members:
        member.is_away = chance.random() < 0.3
        member.turns = chance.randint(0, 3)
    with scheduled_by(chance):
        try:
            last = await ledger.recovered()
        except UnknownLedgerState:
            metadata = await ledger.client.metadata(ledger.ledger_id)
            assert metadata.state is LedgerState.IN_RECOVERY
            for member in ledger.members:
                member.is_away = False
            last = await ledger.recovered()
    await ledger.check(last)


@pytest.mark.parametrize("seed", range(rounds(200)))
async def test_what_a_writer_heard_of_survives(seed: int) -> None:
    """It loses its bookies one after the other, then its life; an entry that an ack quorum has is
    confirmed, whatever the others do."""
    chance = random.Random(seed)
    ledger = Ensemble(chance)
    sizes = ledger.sizes
    writer = await ledger.client.create(LedgerOptions(*sizes))
    ledger.ledger_id = writer.ledger_id
    ensemble = next(iter((await ledger.client.metadata(writer.ledger_id)).ensembles.values()))
    ledger.members.sort(key=lambda each: ensemble.index(each.bookie_id))
    for member in ledger.members:
        member.takes = chance.choice((-1, -1, chance.randint(0, 6)))
    heard: list[int] = []

    def done(first: int, count: int, error: BookkeeperError | None) -> None:
        assert error is None
        assert first == len(heard)
        heard.extend(range(first, first + count))

    pushed = 0
    for _ in range(chance.randint(1, 10)):
        count = chance.randint(1, 4)
        _, made = writer.append([(b"%d" % n,) for n in range(pushed, pushed + count)], done)
        ledger.contents += made
        pushed += count
        if chance.random() < 0.5:
            await settle()
    await settle()
    ledger.confirmed = len(heard) - 1
    assert writer.last_add_confirmed == ledger.confirmed
    if all(member.takes < 0 for member in ledger.members):
        assert len(heard) == pushed
    for member in ledger.members:
        member.is_away = chance.random() < 0.3
    try:
        last = await ledger.recovered()
    except UnknownLedgerState:
        for member in ledger.members:
            member.is_away = False
        last = await ledger.recovered()
    for member in ledger.members:
        member.takes = -1
    await ledger.check(last)
    writer.append([(b"late",)], lambda *_: None)
    with pytest.raises(LedgerFenced):
        await settle()
        await writer.close()


async def test_two_of_three_confirm() -> None:
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    writer = await ledger.client.create(LedgerOptions(3, 3, 2))
    ledger.members[1].answers = False
    assert await append_durably(writer, [(b"a",), (b"b",)]) == 0
    assert writer.last_add_confirmed == 1
    ledger.members[2].answers = False
    heard: list[object] = []
    writer.append([(b"c",)], lambda *answer: heard.append(answer))
    await settle()
    assert (heard, writer.last_add_confirmed) == ([], 1)
    ledger.members[1].answers = True
    writer.append([(b"d",)], lambda *answer: heard.append(answer))
    await settle()
    assert heard == [], "the third entry is on one bookie as far as anybody knows"


async def test_a_bookie_that_fails_ends_the_ledger() -> None:
    """Its writer goes on with another one."""
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    writer = await ledger.client.create(LedgerOptions(3, 3, 2))
    await append_durably(writer, [(b"a",)])
    await ledger.members[2].fence(writer.ledger_id, KEY)
    await append_durably(writer, [(b"b",)])  # the two others have it
    await settle()
    with pytest.raises(LedgerFenced):
        await append_durably(writer, [(b"c",)])
    assert writer.last_add_confirmed == 1


@pytest.mark.parametrize("silent", range(3))
async def test_a_silent_bookie_stops_nothing(silent: int, autojump_clock: object) -> None:
    """Neither while fencing nor while the end is looked for: two of three answer."""
    chance = random.Random(0)
    ledger = Ensemble(chance, (3, 3, 2))
    await ledger.write(chance, 5, 1.0)
    last = DIGEST.packet(ledger.ledger_id, 5, 4, 6, [b"5"])
    ledger.members[silent].is_silent = True
    for member in ledger.members:
        entries = member._ledgers[ledger.ledger_id].entries
        entries[4] = DIGEST.packet(ledger.ledger_id, 4, 3, 5, [b"4"])
        if member is not ledger.members[silent]:
            entries[5] = last
    with trio.fail_after(60):
        assert await ledger.recovered() == 5


async def test_one_copy_is_enough() -> None:
    """The bookie that confirmed it together with this one may be away for good."""
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    ledger.members[0].fails_reads = True
    await ledger.write(random.Random(0), 3, 1.0)
    packet = DIGEST.packet(ledger.ledger_id, 3, 2, 9, [b"3"])
    ledger.contents.append(packet)
    ledger.members[1]._ledgers[ledger.ledger_id].entries[3] = packet
    assert await ledger.recovered() == 3
    await ledger.check(3)


async def test_a_damaged_copy_does_not_hide_a_whole_one() -> None:
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    await ledger.write(random.Random(0), 6, 1.0)
    for entry_id, member in enumerate(ledger.members, 2):
        entries = member._ledgers[ledger.ledger_id].entries
        entries[entry_id] = entries[entry_id][:-1] + b"?"
    assert await ledger.recovered() == 5
    await ledger.check(5)


@pytest.mark.parametrize("has_it", [True, False])
async def test_the_end_is_never_guessed(has_it: bool) -> None:
    """Of WQ 3, AQ 2 one bookie without an entry doesn't rule it out while the others are away."""
    ledger = Ensemble(random.Random(0), (3, 3, 2))
    await ledger.write(random.Random(0), 2, 1.0)
    ledger.contents.append(DIGEST.packet(ledger.ledger_id, 2, 1, 3, [b"2"]))
    for member in ledger.members[1:]:
        member.fails_reads = True
        if has_it:
            member._ledgers[ledger.ledger_id].entries[2] = ledger.contents[2]
    for _ in range(2):
        with pytest.raises(UnknownLedgerState):
            await ledger.recovered()
    ledger.members[1].fails_reads = False
    last = await ledger.recovered()
    assert last == (2 if has_it else 1)
    await ledger.check(last)

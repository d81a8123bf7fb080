"""Ledgers over the bookie in memory and the metadata store in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from geminga_bookie._tests.asked_bookie import Add, AskedBookie, nobody
from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import DigestType, LedgerOptions, LedgerState
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    StorageFailed,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_bookie.port import AddDone
from geminga_protocol.bookkeeper.digest import Digest
from geminga_runtime.metadata.memory import MemoryMetadataStore


class FlakyBookie(AskedBookie):
    """Holds back or fails the results of adds, and fails reads of an entry."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: BookkeeperError | None = None
        self.read_failure: BookkeeperError | None = None
        self.held: list[tuple[AddDone, int, int]] | None = None

    def take(self, add: Add) -> None:
        if self.failure is not None:
            add.answer(self.failure)
        elif self.held is not None:
            self.store(replace(add, done=nobody))
            self.held.append((add.done, add.first_entry_id, add.count))
        else:
            self.store(add)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        if self.read_failure is not None:
            raise self.read_failure
        return await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )


class Answers(list[tuple[int, int, BookkeeperError | None]]):
    """Collects the results of appends."""

    def __call__(self, first: int, count: int, error: BookkeeperError | None) -> None:
        self.append((first, count, error))


class World:
    """A bookie, a store, and clients on them."""

    def __init__(self) -> None:
        self.bookie = FlakyBookie()
        self.store = MemoryMetadataStore()
        self.client = self.new_client()

    def new_client(self) -> BookkeeperClient:
        return BookkeeperClient(KnownBookies([self.bookie]), self.store)


@pytest.fixture
def world() -> World:
    return World()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def written(world: World, payloads: list[bytes]) -> LedgerWriter:
    writer = await world.client.create(LedgerOptions())
    writer.append([(payload,) for payload in payloads], Answers())
    await settle()
    return writer


async def test_appends_complete_by_runs_and_are_read_back(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    answers = Answers()
    first, packets = writer.append([(b"one", b"-", b"1"), (b"two",)], answers)
    payloads = [packet[writer.packet_head_bytes :] for packet in packets]
    assert (first, payloads) == (0, [b"one-1", b"two"])
    assert writer.append([(memoryview(b"three"),)], answers)[0] == 2
    assert (writer.last_add_pushed, writer.last_add_confirmed) == (2, -1)
    await settle()
    assert answers == [(0, 2, None), (2, 1, None)]
    assert (writer.last_add_confirmed, writer.length) == (2, 13)
    assert [bytes(view) for view in await writer.read(1, 2)] == [b"two", b"three"]
    assert [bytes(view) for view in await writer.read(0, 2, bytes_max=1)] == [b"one-1"]
    with pytest.raises(NoSuchEntry):
        await writer.read(2, 3)


async def test_a_closed_ledger_is_opened_with_its_end(world: World) -> None:
    writer = await written(world, [b"a", b"bc"])
    await writer.close()
    await writer.close()
    metadata = await world.client.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 1, 3)
    reader = await world.new_client().open(writer.ledger_id, b"", recover=False)
    assert (reader.last_add_confirmed, reader.length) == (1, 3)
    assert [bytes(view) for view in await reader.read(0, 1)] == [b"a", b"bc"]
    answers = Answers()
    writer.append([(b"late",)], answers)
    assert [type(error).__name__ for _, _, error in answers] == ["LedgerClosed"]


async def test_closing_waits_for_pending_appends(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    writer.append([(b"a",)], Answers())
    await writer.close()
    assert (await world.client.metadata(writer.ledger_id)).last_entry_id == 0


async def test_an_append_may_complete_by_several_runs(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    answers = Answers()
    writer.append([(b"a",), (b"bb",), (b"ccc",)], answers)
    [(done, _, _)] = world.bookie.held
    done(0, 2, None)
    assert answers == [(0, 2, None)]
    assert (writer.last_add_confirmed, writer.length) == (1, 3)
    done(2, 1, None)
    assert answers[1:] == [(2, 1, None)]
    assert writer.length == 6


async def test_each_append_completes_separately(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    mine, other = Answers(), Answers()
    for answers in (mine, mine, other, mine, mine):
        writer.append([(b"a",), (b"b",)], answers)
    done = world.bookie.held[0][0]
    done(0, 7, None)
    assert (mine, other) == ([(0, 2, None), (2, 2, None), (6, 1, None)], [(4, 2, None)])
    assert writer.length == 7
    done(7, 3, None)
    assert mine[3:] == [(7, 1, None), (8, 2, None)]
    assert writer.length == 10


async def test_a_failing_callback_does_not_affect_other_appends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_first: int, _count: int, _error: BookkeeperError | None) -> None:
        raise RuntimeError("a defect")

    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    answers = Answers()
    for done in (broken, answers, broken, answers):
        writer.append([(b"a",)], done)
    world.bookie.held[0][0](0, 2, None)
    world.bookie.held[0][0](2, 1, StorageFailed("disk"))
    assert [(first, type(error)) for first, _, error in answers] == [
        (1, type(None)),
        (3, StorageFailed),
    ]
    assert caplog.text.count("the answer to an append failed") == 2


async def test_an_abandoned_ledger_completes_each_append_once(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    answers = Answers()

    def leave(first: int, count: int, error: BookkeeperError | None) -> None:
        answers(first, count, error)
        writer.abandon(StorageFailed("not ours any more"))

    for done in (leave, answers, answers):
        writer.append([(b"a",), (b"b",)], done)
    world.bookie.held[0][0](0, 5, None)
    world.bookie.held[0][0](5, 1, None)
    assert [(first, count) for first, count, _ in answers] == [(0, 2), (2, 2), (4, 2)]
    assert [type(error) for _, _, error in answers] == [type(None)] + [StorageFailed] * 2
    writer.append([(b"c",)], answers)
    assert isinstance(answers[-1][2], StorageFailed)


async def test_after_an_error_everything_later_fails(world: World) -> None:
    writer = await written(world, [b"kept"])
    world.bookie.held = []
    answers = Answers()
    for payload in (b"x", b"y"):
        writer.append([(payload,)], answers)
    held = world.bookie.held
    held[0][0](1, 1, StorageFailed("disk"))
    held[1][0](2, 1, None)
    writer.append([(b"z",)], answers)
    assert [(first, type(error)) for first, _, error in answers] == [
        (1, StorageFailed),
        (2, StorageFailed),
        (2 + 1, StorageFailed),
    ]
    await writer.close()
    assert (await world.client.metadata(writer.ledger_id)).last_entry_id == 0


async def test_recovery_fences_the_old_writer(world: World) -> None:
    writer = await written(world, [b"a", b"b"])
    reader = await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == 1
    assert reader.length == 2
    answers = Answers()
    writer.append([(b"c",)], answers)
    await settle()
    assert [type(error) for _, _, error in answers] == [LedgerFenced]
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert (await world.client.metadata(writer.ledger_id)).last_entry_id == 1


async def test_recovery_finds_entries_beyond_the_last_add_confirmed(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    for n in range(600):
        writer.append([(b"%03d" % n,)], Answers())
    world.bookie.held = None
    reader = await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert (reader.last_add_confirmed, reader.length) == (599, 1800)
    assert len(await reader.read(0, 599)) == 600


async def test_recovery_of_an_empty_ledger(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    reader = await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert (reader.last_add_confirmed, reader.length) == (-1, 0)


async def test_two_recoveries_and_the_writer_agree(world: World) -> None:
    writer = await written(world, [b"a"] * 10)
    ends: list[int] = []

    async def recover() -> None:
        reader = await world.new_client().open(writer.ledger_id, b"", recover=True)
        ends.append(reader.last_add_confirmed)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(recover)
        writer.append([(b"b",)], Answers())
    assert len(set(ends)) == 1
    assert ends[0] == (await world.client.metadata(writer.ledger_id)).last_entry_id


async def test_a_writer_that_heard_less_does_not_close_over_a_recovery(world: World) -> None:
    """It would remove entries that the ledger's new owner has read."""
    writer = await written(world, [b"a"])
    world.bookie.held = []
    writer.append([(b"b",)], Answers())
    world.bookie.held = None
    reader = await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == 1
    writer.abandon(StorageFailed("the answer was lost"))
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert (await world.client.metadata(writer.ledger_id)).last_entry_id == 1
    again = await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert [bytes(view) for view in await again.read(0, 1)] == [b"a", b"b"]


@pytest.mark.parametrize("failure", [UnknownLedgerState("unclean stop"), StorageFailed("disk")])
async def test_recovery_fails_while_the_end_is_unknown(
    world: World, failure: BookkeeperError
) -> None:
    writer = await written(world, [b"a"])
    world.bookie.read_failure = failure
    with pytest.raises(UnknownLedgerState):
        await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert (await world.client.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    world.bookie.read_failure = None
    reader = await world.new_client().open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == 0


async def test_recovery_fails_while_entries_cannot_be_written_again(world: World) -> None:
    writer = await world.client.create(LedgerOptions())
    world.bookie.held = []
    writer.append([(b"a",)], Answers())
    world.bookie.held = None
    world.bookie.failure = StorageFailed("full")
    with pytest.raises(UnknownLedgerState, match="full"):
        await world.new_client().open(writer.ledger_id, b"", recover=True)


async def test_an_open_ledger_is_read_up_to_the_last_add_confirmed(world: World) -> None:
    writer = await written(world, [b"a"])
    writer.append([(b"b",)], Answers())
    await settle()
    reader = await world.client.open(writer.ledger_id, b"", recover=False)
    assert reader.last_add_confirmed == 0  # it travels with the next entry
    writer.append([(b"c",)], Answers())
    await settle()
    assert await reader.read_last_add_confirmed() == 1
    assert reader.length == 2


async def test_errors_of_opening_and_creating(world: World) -> None:
    writer = await world.client.create(LedgerOptions(password=b"secret"))
    with pytest.raises(UnauthorizedAccess):
        await world.client.open(writer.ledger_id, b"guess", recover=False)
    with pytest.raises(NoSuchLedger):
        await world.client.open(999, b"", recover=True)
    with pytest.raises(NotEnoughBookies):
        await world.client.create(LedgerOptions(2, 2, 2))
    with pytest.raises(NotEnoughBookies):
        await BookkeeperClient(KnownBookies(), world.store).create(LedgerOptions())
    with pytest.raises(ValueError):
        await world.client.create(LedgerOptions(1, 1, 2))


async def test_a_wrong_digest_is_an_error(world: World) -> None:
    writer = await written(world, [b"a"])
    packet = Digest().packet(writer.ledger_id, 0, -1, 1, [b"a"])
    world.bookie._ledgers[writer.ledger_id].entries[0] = packet[:-1] + b"b"
    with pytest.raises(DigestMismatch):
        await writer.read(0, 0)


@pytest.mark.parametrize("kind", DigestType)
async def test_every_digest_type_reads_back(world: World, kind: DigestType) -> None:
    options = LedgerOptions(
        digest_type=kind, password=b"pw", custom_metadata={"application": b"pulsar"}
    )
    writer = await world.client.create(options)
    writer.append([(b"x",)], Answers())
    await writer.close()
    reader = await world.new_client().open(writer.ledger_id, b"pw", recover=False)
    assert [bytes(view) for view in await reader.read(0, 0)] == [b"x"]
    metadata = await world.client.metadata(writer.ledger_id)
    assert metadata.digest_type is kind
    assert metadata.custom_metadata == {"application": b"pulsar"}


async def test_ledgers_are_listed_and_deleted(world: World) -> None:
    writers = [await world.client.create(LedgerOptions()) for _ in range(5)]
    ids = [writer.ledger_id for writer in writers]
    assert ids == sorted(set(ids))
    await world.client.delete(ids[1])
    await world.client.delete(ids[1])
    assert [ledger_id async for ledger_id in world.client.ledgers()] == [ids[0], *ids[2:]]

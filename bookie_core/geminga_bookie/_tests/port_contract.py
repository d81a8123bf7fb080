"""The contract of `BookiePort`: every implementation passes these classes.

A module that tests one derives its classes from these, and has the fixtures `bookie`, with the id
`bookie-1:3181`, and `first_ledger`: that ledger and the next two are new to the bookie.
"""

from __future__ import annotations

import pytest
import trio

from geminga_bookie._tests.support import (
    KEY,
    OTHER_KEY,
    Outcomes,
    add,
    lac_in,
    lac_packet,
    packet,
    packets,
    read_all,
    read_lac,
    write_lac,
)
from geminga_bookie.errors import (
    BookkeeperError,
    IncorrectParameter,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
)
from geminga_bookie.port import BookiePort, LacAnswer

_TOO_LARGE = 1 << 63


class WithLedgers:
    """Ids of ledgers that no other test has."""

    a = b = c = 0

    @pytest.fixture(autouse=True)
    def own_ledgers(self, first_ledger: int) -> None:
        self.a, self.b, self.c = range(first_ledger, first_ledger + 3)


class BookiePortContract(WithLedgers):
    """What holds of every bookie, also of Apache's."""

    fences_tell_explicit_lac = True
    """Not over the network."""

    async def test_has_an_id(self, bookie: BookiePort) -> None:
        assert bookie.bookie_id == "bookie-1:3181"

    async def test_tells_its_room(self, bookie: BookiePort) -> None:
        total_bytes, free_bytes, read_only = await bookie.info()
        assert 0 <= free_bytes <= total_bytes
        assert read_only == ""

    async def test_reads_what_was_added(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(10))
        assert await bookie.read(self.a, 0, entries_max=100, bytes_max=1 << 20) == packets(
            self.a, range(10)
        )
        assert await bookie.read(self.a, 4, entries_max=3, bytes_max=1 << 20) == packets(
            self.a, range(4, 7)
        )

    async def test_a_read_is_bounded_in_bytes_but_never_empty(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(10))
        size = len(packet(self.a, 0))
        assert len(await bookie.read(self.a, 0, entries_max=9, bytes_max=3 * size)) == 3
        assert len(await bookie.read(self.a, 0, entries_max=9, bytes_max=3 * size - 1)) == 2
        assert len(await bookie.read(self.a, 0, entries_max=9, bytes_max=1)) == 1

    async def test_done_comes_later_in_order_and_by_runs(self, bookie: BookiePort) -> None:
        outcomes = Outcomes()
        for first in range(0, 100, 10):
            bookie.add(self.a, KEY, first, packets(self.a, range(first, first + 10)), outcomes)
        assert outcomes.runs == []
        await outcomes.wait_for(100)
        expected = 0
        for first, count, error in outcomes.runs:
            assert (first, error) == (expected, None)
            expected += count
        assert expected == 100

    async def test_a_failing_callback_does_not_affect_the_others(
        self, bookie: BookiePort, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(_first: int, _count: int, _error: BookkeeperError | None) -> None:
            raise RuntimeError("a defect")

        outcomes = Outcomes()
        bookie.add(self.a, KEY, 0, packets(self.a, range(2)), broken)
        bookie.add(self.a, KEY, 2, packets(self.a, range(2, 4)), outcomes)
        await outcomes.wait_for(2)
        # In one piece, or as their answers came over the network.
        assert [error for _, _, error in outcomes.runs if error is not None] == []
        found = [each for first, count, _ in outcomes.runs for each in range(first, first + count)]
        assert found == [2, 3]
        assert "a defect" in caplog.text
        await add(bookie, self.a, [4])

    async def test_missing_entries_and_ledgers(self, bookie: BookiePort) -> None:
        with pytest.raises(NoSuchLedger):
            await bookie.read(self.a, 0, entries_max=1, bytes_max=1)
        with pytest.raises(NoSuchLedger):
            await read_lac(bookie, self.a)
        await add(bookie, self.a, [0])
        with pytest.raises(NoSuchEntry):
            await bookie.read(self.a, 1, entries_max=1, bytes_max=1)
        with pytest.raises(NoSuchLedger):
            await bookie.read(self.b, 0, entries_max=1, bytes_max=1)

    async def test_another_master_key_is_refused(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, [0])
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, self.a, [1], key=OTHER_KEY)
        with pytest.raises(UnauthorizedAccess):
            await bookie.fence(self.a, OTHER_KEY)
        with pytest.raises(UnauthorizedAccess):
            await write_lac(bookie, self.a, 1, OTHER_KEY)
        await add(bookie, self.a, [1])

    async def test_fenced_ledgers_take_recovery_adds_only(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(5))
        assert lac_in(await bookie.fence(self.a, KEY)) == 3
        assert lac_in(await bookie.fence(self.a, KEY)) == 3
        with pytest.raises(LedgerFenced):
            await add(bookie, self.a, [5])
        with pytest.raises(NoSuchEntry):
            await bookie.read(self.a, 5, entries_max=1, bytes_max=1)
        await add(bookie, self.a, [5], recovery=True)
        assert await read_all(bookie, self.a, 0, 5) == packets(self.a, range(6))

    async def test_a_ledger_can_be_fenced_before_its_first_entry(self, bookie: BookiePort) -> None:
        assert lac_in(await bookie.fence(self.a, KEY)) == -1
        with pytest.raises(LedgerFenced):
            await add(bookie, self.a, [0])

    async def test_lac_is_the_best_of_both(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(5))
        assert await read_lac(bookie, self.a) == 3
        await write_lac(bookie, self.a, 4)
        assert await read_lac(bookie, self.a) == 4

    async def test_lac_answers_are_packets(self, bookie: BookiePort) -> None:
        assert await bookie.fence(self.a, KEY) == LacAnswer(None, None)
        await add(bookie, self.a, range(3), recovery=True)
        assert await bookie.read_lac(self.a) == LacAnswer(packets(self.a, [2])[0], None)
        await write_lac(bookie, self.a, 2)
        expected = LacAnswer(packets(self.a, [2])[0], lac_packet(self.a, 2))
        assert await bookie.read_lac(self.a) == expected
        if not self.fences_tell_explicit_lac:
            expected = expected._replace(explicit_packet=None)
        assert await bookie.fence(self.a, KEY) == expected

    async def test_an_explicit_lac_of_something_else(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(3))
        wrong = (
            lac_packet(self.b, 1),
            lac_packet(self.a, 2),
            b"",
            lac_packet(self.a, 1)[:-1],
            bytes(37),
        )
        for packet_bytes in wrong:
            with pytest.raises(IncorrectParameter):
                await bookie.write_lac(self.a, KEY, 1, packet_bytes)
        assert (await bookie.read_lac(self.a)).explicit_packet is None

    async def test_the_last_entry(self, bookie: BookiePort) -> None:
        with pytest.raises(NoSuchLedger):
            await bookie.last_entry(self.a)
        await bookie.fence(self.a, KEY)
        with pytest.raises(NoSuchEntry):
            await bookie.last_entry(self.a)
        for ids in ([5, 6], [1, 2], [6]):
            await add(bookie, self.a, ids, recovery=True)
            assert await bookie.last_entry(self.a) == packets(self.a, [6])[0]

    async def test_long_poll_wakes_when_the_lac_moves(
        self, bookie: BookiePort, nursery: trio.Nursery
    ) -> None:
        await add(bookie, self.a, range(2))
        send, seen = trio.open_memory_channel[int](2)

        async def wait(previous: int) -> None:
            await send.send((await bookie.wait_entry(self.a, previous + 1, previous))[1])

        assert await bookie.wait_entry(self.a, 0, -1) == (packets(self.a, [0])[0], 0)
        assert await bookie.wait_entry(self.a, 1, -1) == (None, 0), "it isn't confirmed"
        nursery.start_soon(wait, 0)
        nursery.start_soon(wait, 3)
        await trio.testing.wait_all_tasks_blocked()
        await add(bookie, self.a, [2])
        assert await seen.receive() == 1
        await write_lac(bookie, self.a, 9)
        assert await seen.receive() == 9

    async def test_a_cancelled_long_poll_leaves_the_others(
        self, bookie: BookiePort, nursery: trio.Nursery
    ) -> None:
        await add(bookie, self.a, [0])
        send, seen = trio.open_memory_channel[int](1)

        async def wait() -> None:
            await send.send((await bookie.wait_entry(self.a, 1, 0))[1])

        nursery.start_soon(wait)
        with trio.move_on_after(0.01):
            await bookie.wait_entry(self.a, 1, 0)
        await write_lac(bookie, self.a, 1)
        assert await seen.receive() == 1

    async def test_force_returns_behind_earlier_adds(self, bookie: BookiePort) -> None:
        outcomes = Outcomes()
        bookie.add(self.a, KEY, 0, packets(self.a, range(5)), outcomes)
        await bookie.force(self.a)
        assert outcomes.total == 5

    async def test_an_entry_can_be_added_again(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(10))
        await add(bookie, self.a, range(3, 6), recovery=True)
        assert await read_all(bookie, self.a, 0, 9) == packets(self.a, range(10))

    async def test_a_large_entry(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, [0], size=5 * 1024 * 1024)
        found = await bookie.read(self.a, 0, entries_max=1, bytes_max=1)
        assert found == packets(self.a, [0], 5 * 1024 * 1024)


class ListingContract(WithLedgers):
    """Lists of entries: some of Apache's storages have none."""

    async def test_lists_entries_ascending(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(10, 20))
        await add(bookie, self.a, range(5), recovery=True)
        assert await bookie.list_entries(self.a) == [*range(5), *range(10, 20)]

    async def test_lists_entries_once(self, bookie: BookiePort) -> None:
        with pytest.raises(NoSuchLedger):
            await bookie.list_entries(self.a)
        await add(bookie, self.a, range(10))
        await add(bookie, self.a, range(3, 6), recovery=True)
        assert await bookie.list_entries(self.a) == list(range(10))


class OwnBookieContract(WithLedgers):
    """What holds of ours, and not of Apache's."""

    async def test_a_refusal_does_not_overtake_earlier_adds(self, bookie: BookiePort) -> None:
        outcomes = Outcomes()
        bookie.add(self.a, KEY, 0, packets(self.a, range(5)), outcomes)
        bookie.add(self.a, OTHER_KEY, 5, packets(self.a, [5]), outcomes)
        bookie.add(self.a, KEY, 5, packets(self.a, [5]), outcomes)
        await outcomes.wait_for(7)
        kinds = [(first, count, type(error)) for first, count, error in outcomes.runs]
        assert kinds == [
            (0, 5, type(None)),
            (5, 1, UnauthorizedAccess),
            (5, 1, type(None)),
        ]

    async def test_a_lower_explicit_lac_does_not_count(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(5))
        for lac in (4, 2):
            await write_lac(bookie, self.a, lac)
            assert await read_lac(bookie, self.a) == 4
        expected = LacAnswer(packets(self.a, [4])[0], lac_packet(self.a, 4))
        assert await bookie.read_lac(self.a) == expected


class ImpossibleContract(WithLedgers):
    """Ids and keys that the files can't hold are refused, without effect on others (BK-09)."""

    @pytest.mark.parametrize(
        ("ledger_id", "key", "first"),
        [
            (-1, KEY, 0),
            (_TOO_LARGE, KEY, 0),
            ("a", KEY, -1),
            ("a", KEY, -5),
            ("a", KEY, _TOO_LARGE - 1),
            ("a", KEY, _TOO_LARGE),
            ("b", bytes(65_536), 0),
        ],
    )
    async def test_adds(
        self, bookie: BookiePort, ledger_id: int | str, key: bytes, first: int
    ) -> None:
        if isinstance(ledger_id, str):
            ledger_id = {"a": self.a, "b": self.b}[ledger_id]
        await add(bookie, self.a, range(5))
        good, bad = Outcomes(), Outcomes()
        bookie.add(self.a, KEY, 5, packets(self.a, [5]), good)
        for recovery in (False, True):
            bookie.add(ledger_id, key, first, packets(1, range(2)), bad, recovery=recovery)
        bookie.add(self.a, KEY, 6, packets(self.a, [6]), good)
        await bad.wait_for(4)
        await good.wait_for(2)
        assert good.errors == []
        assert [type(error) for error in bad.errors] == [IncorrectParameter] * len(bad.errors)
        assert len(bad.errors) >= 1
        assert await read_all(bookie, self.a, 0, 6) == packets(self.a, range(7))
        with pytest.raises(NoSuchLedger):
            await read_lac(bookie, self.b)

    async def test_an_add_larger_than_a_record_of_the_journal(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(5))
        outcomes = Outcomes()
        bookie.add(self.a, KEY, 5, [bytes(1 << 20)] * 257, outcomes)
        await outcomes.wait_for(257)
        assert [type(error) for error in outcomes.errors] == [IncorrectParameter]

    @pytest.mark.parametrize("ledger_id", [-1, -(1 << 63), _TOO_LARGE])
    async def test_ledger_ids(self, bookie: BookiePort, ledger_id: int) -> None:
        with pytest.raises(IncorrectParameter):
            await bookie.fence(ledger_id, KEY)
        with pytest.raises(IncorrectParameter):
            await bookie.write_lac(ledger_id, KEY, 1, b"")
        with pytest.raises(IncorrectParameter):
            await bookie.read(ledger_id, 0, entries_max=1, bytes_max=1)
        with pytest.raises(IncorrectParameter):
            await read_lac(bookie, ledger_id)
        with pytest.raises(IncorrectParameter):
            await bookie.list_entries(ledger_id)

    async def test_entry_ids_lacs_and_keys(self, bookie: BookiePort) -> None:
        await add(bookie, self.a, range(5))
        for entry_id in (-1, _TOO_LARGE):
            with pytest.raises(IncorrectParameter):
                await bookie.read(self.a, entry_id, entries_max=1, bytes_max=1)
        for lac in (-2, -(1 << 63)):
            with pytest.raises(IncorrectParameter):
                await write_lac(bookie, self.a, lac)
        with pytest.raises(IncorrectParameter):
            await bookie.fence(self.b, bytes(65_536))
        with pytest.raises(IncorrectParameter):
            await write_lac(bookie, self.b, 1, bytes(65_536))
        assert lac_in(await bookie.fence(self.a, KEY)) == 3
        assert lac_in(await bookie.fence(self.c, bytes(65_535))) == -1

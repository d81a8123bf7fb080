"""What a recovery asks its bookies for (BK-23): they answer each entry that they don't have for
itself, and a broker that takes over asks about the ends of thousands of ledgers at once."""

from __future__ import annotations

import pytest

from geminga_bookie.client.api import LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.errors import NoSuchEntry
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.port import LacAnswer
from geminga_protocol.bookkeeper.digest import Digest, master_key
from geminga_runtime.metadata.memory import MemoryMetadataStore


class Counted(MemoryBookie):
    """Notes how many entries it is asked for."""

    asked = 0
    reads = 0
    shows_last = True

    def lose(self, ledger_id: int, entry_id: int) -> None:
        del self._ledgers[ledger_id].entries[entry_id]

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        answer = await super().fence(ledger_id, master_key)
        if self.shows_last:
            return answer
        (first,) = await super().read(ledger_id, 0, entries_max=1, bytes_max=100)
        return answer._replace(last_packet=first)

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        self.asked += entries_max
        self.reads += 1
        return await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )


@pytest.mark.parametrize("shows_last", [True, False])
@pytest.mark.parametrize("beyond", [0, 1, 7, 8, 9, 300, 5000])
async def test_few_entries_are_asked_for_that_are_not_there(
    beyond: int, *, shows_last: bool
) -> None:
    bookie = Counted("one:3181")
    bookie.shows_last = shows_last
    directory, store = KnownBookies([bookie]), MemoryMetadataStore()
    client = BookkeeperClient(directory, store)
    writer = await client.create(LedgerOptions(ensemble_size=1, write_quorum=1, ack_quorum=1))
    # Entries of one run carry the LAC of before, so all of them lie behind what is known.
    await append_durably(writer, [(b"first",)])
    if beyond:
        await append_durably(writer, [(b"%d" % number,) for number in range(beyond)])
    bookie.asked = 0
    reader = await BookkeeperClient(directory, store).open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == beyond
    metadata = await client.metadata(writer.ledger_id)
    assert metadata.state is LedgerState.CLOSED
    assert metadata.length == sum(len(b"%d" % number) for number in range(beyond)) + len(b"first")
    if shows_last:
        # The last one came with the fence: alone it isn't asked for, nor is the last confirmed one.
        assert bookie.asked <= (beyond if beyond > 1 else 0) + 1, "and the one behind the last"
    else:
        assert bookie.asked <= 3 * beyond + 4
    assert bookie.reads <= 12 + beyond // 100
    # A cursor's state is in its ledger's last entry, which came with the recovery.
    bookie.asked = 0
    [last] = await reader.read(beyond, beyond)
    assert bytes(last) == (b"%d" % (beyond - 1) if beyond else b"first")
    assert bookie.asked == 0


@pytest.mark.parametrize("beyond", [0, 1, 50, 1000])
async def test_bookies_of_striped_ledgers_are_asked_for_their_neighbours_alone(beyond: int) -> None:
    """None has more than a write quorum of them, and each other one is asked for in vain."""
    bookies = [Counted(f"{name}:3181") for name in ("one", "two", "three")]
    directory, store = KnownBookies(bookies), MemoryMetadataStore()
    client = BookkeeperClient(directory, store)
    writer = await client.create(LedgerOptions(ensemble_size=3, write_quorum=2, ack_quorum=2))
    await append_durably(writer, [(b"first",)])
    if beyond:
        await append_durably(writer, [(b"%d" % number,) for number in range(beyond)])
    for bookie in bookies:
        bookie.asked = 0
    reader = await BookkeeperClient(directory, store).open(writer.ledger_id, b"", recover=True)
    assert reader.last_add_confirmed == beyond
    assert sum(bookie.asked for bookie in bookies) <= 1.5 * beyond + 12


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_lost_confirmed_entry(*, is_last: bool) -> None:
    """In front of others it is told to its reader; the last one is asked for, for the length."""
    bookie = Counted("one:3181")
    directory, store = KnownBookies([bookie]), MemoryMetadataStore()
    client = BookkeeperClient(directory, store)
    writer = await client.create(LedgerOptions(ensemble_size=1, write_quorum=1, ack_quorum=1))
    ledger_id = writer.ledger_id
    for payload in (b"0", b"1") if is_last else (b"0", b"1", b"2"):
        await append_durably(writer, [(payload,)])
    bookie.lose(ledger_id, 1)
    if is_last:
        packet = Digest().lac_packet(ledger_id, 1)
        await bookie.write_lac(ledger_id, master_key(b""), 1, packet)
        with pytest.raises(NoSuchEntry, match="no bookie has confirmed entry 1"):
            await client.open(ledger_id, b"", recover=True)
    else:
        reader = await client.open(ledger_id, b"", recover=True)
        assert (reader.last_add_confirmed, reader.length) == (2, 3)
        with pytest.raises(NoSuchEntry):
            await reader.read(1, 1)

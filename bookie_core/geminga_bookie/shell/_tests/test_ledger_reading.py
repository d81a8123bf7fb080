"""`readledger` on a cluster."""

from __future__ import annotations

import pytest

from geminga_bookie.autorecovery._tests.world import World
from geminga_bookie.autorecovery.tools import Cluster, ToolFailed
from geminga_bookie.client.api import LedgerOptions, LedgerState
from geminga_bookie.client.append import append_durably
from geminga_bookie.shell.ledger_reading import EntryRange, read_ledger


def cluster(world: World) -> tuple[Cluster, list[str]]:
    lines: list[str] = []
    at = Cluster(world.store, world.directory, world.tasks, world.options, lines.append)
    return at, lines


def head(ledger: int | str, entry_id: int, size: int | None) -> str:
    end = "" if size is None else f", EntrySize={size}"
    return f"--------- Lid={ledger}, Eid={entry_id}{end} ---------"


async def test_a_ledger_is_read_from_any_bookie() -> None:
    world = World(3)
    await world.register()
    writer = await world.client.create(LedgerOptions(3, 3, 2, password=b"secret"))
    await append_durably(writer, [[b"one"], [b"t\x1bwo"], [b"three"]])
    await writer.close()
    number = writer.ledger_id
    for peer in world.peers[:2]:
        peer.damage(number, 0)
    at, lines = cluster(world)
    assert await read_ledger(at, EntryRange(number, entry_format="string")) == 0
    assert lines == [
        *(head(number, 0, 3), "one"),
        *(head(number, 1, 7), "t\\x1bwo"),
        *(head(number, 2, 12), "three"),
    ]
    lines.clear()
    wanted = EntryRange(number, 1, 7, ledger_id_format="hex")
    assert await read_ledger(at, wanted) == 0
    assert lines == [head(f"{number:x}", 1, 7), head(f"{number:x}", 2, 12)]


async def test_what_one_bookie_has() -> None:
    """What it lacks, and what is damaged there, is said."""
    world = World(3)
    await world.register()
    ledger = await world.ledger((3, 3, 2), 4)
    peer = world.peers[1]
    peer.lose(ledger.ledger_id, 1)
    peer.damage(ledger.ledger_id, 2)
    at, lines = cluster(world)
    wanted = EntryRange(ledger.ledger_id, bookie_id=peer.bookie_id)
    assert await read_ledger(at, wanted) == 1
    heads = [line for line in lines if line.startswith("---")]
    assert heads == [head(ledger.ledger_id, entry_id, None) for entry_id in range(4)]
    assert sum(line.startswith("Error: ") for line in lines) == 2
    assert await read_ledger(at, wanted._replace(bookie_id="nobody:1")) == 1


async def test_an_open_ledger_is_closed_if_asked_for() -> None:
    world = World(3)
    await world.register()
    writer = await world.client.create(LedgerOptions(3, 3, 2))
    await append_durably(writer, [[b"one"], [b"two"]])
    at, lines = cluster(world)
    await read_ledger(at, EntryRange(writer.ledger_id))
    metadata = await world.client.metadata(writer.ledger_id)
    assert metadata.state is LedgerState.OPEN
    lines.clear()
    assert await read_ledger(at, EntryRange(writer.ledger_id, recovers=True)) == 0
    assert lines == [head(writer.ledger_id, 0, 3), head(writer.ledger_id, 1, 6)]
    metadata = await world.client.metadata(writer.ledger_id)
    assert metadata.state is LedgerState.CLOSED


async def test_a_ledger_that_is_not_there() -> None:
    at, lines = cluster(World(1))
    with pytest.raises(ToolFailed, match="7"):
        await read_ledger(at, EntryRange(7))
    assert lines == []

"""A file of the SQLite store that something else has changed: noticed at the next start, and only
then.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from geminga_protocol._tests.rounds import rounds
from geminga_runtime.metadata._tests.store_files import (
    PAGE_BYTES,
    Nodes,
    content,
    files_of,
    filled,
    flip,
    put_back,
    read,
    replace,
)
from geminga_runtime.metadata.integrity import checkpoints
from geminga_runtime.metadata.integrity.check import StoreDamaged, StoreOpenError, check_file
from geminga_runtime.metadata.sqlite import SqliteMetadataStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is copied to the file often."""
    monkeypatch.setattr(checkpoints, "LOG_PAGES", 20)
    monkeypatch.setattr(checkpoints, "RETRY_PAGES", 5)


async def change(store: SqliteMetadataStore, draw: random.Random, nodes: Nodes) -> None:
    """One change of the nodes."""
    path = f"/{draw.choice('abc')}/{draw.randrange(40)}"
    if path in nodes and draw.random() < 0.3:
        await store.delete(path)
        del nodes[path]
    else:
        value = draw.randbytes(draw.choice((0, 10, 300, 3000, 9000)))
        await store.put(path, value)
        nodes[path] = value


def old_life(file: Path, draw: random.Random, nodes: Nodes) -> None:
    """As a version without checksums wrote, which SQLite's own copying of the log suits too."""
    database = sqlite3.connect(file, isolation_level=None)
    database.execute(f"PRAGMA wal_autocheckpoint = {draw.choice((3, 20, 200))}").fetchall()
    for _ in range(draw.randrange(30)):
        path = draw.choice(sorted(nodes) or ["/"])
        if path == "/":
            break
        nodes[path] = draw.randbytes(draw.choice((10, 3000)))
        parent, _, name = path.rpartition("/")
        database.execute(
            "UPDATE nodes SET value = ? WHERE parent = ? AND name = ?", (nodes[path], parent, name)
        )
    # A connection for reading keeps the log from being removed with the last one for writing.
    reader = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None)
    if draw.random() < 0.7:
        reader.execute("SELECT count(*) FROM nodes").fetchall()
        database.close()
        reader.close()
    else:
        reader.close()
        database.close()


async def lives(
    file: Path,
    draw: random.Random,
    nodes: Nodes,
    started: Callable[[SqliteMetadataStore], Awaitable[None]],
) -> None:
    """Some lives of a store, ended in order or by a kill."""
    for _ in range(draw.randrange(1, 6)):
        store = await SqliteMetadataStore.open(file)
        await started(store)
        killed_at = draw.choice((-1, -1, draw.randrange(60)))
        image: dict[str, bytes] = {}
        then = dict(nodes)
        for step in range(draw.randrange(60)):
            await change(store, draw, nodes)
            if step == killed_at:
                image, then = files_of(file), dict(nodes)
        await store.aclose()
        if image:
            put_back(file, image)
            nodes.clear()
            nodes.update(then)
        if draw.random() < 0.2:
            old_life(file, draw, nodes)


@pytest.mark.slow
async def test_no_false_alarm(file: Path) -> None:
    """After any ends of lives, also of an older version in between."""
    proven = 0
    for seed in range(rounds(40)):
        put_back(file, {})
        draw, nodes = random.Random(seed), Nodes()

        async def started(store: SqliteMetadataStore, nodes: Nodes = nodes) -> None:
            assert await read(store) == nodes

        await lives(file, draw, nodes, started)
        found = check_file(file)
        assert found.damage == "", seed
        proven += found.is_proven
        store = await SqliteMetadataStore.open(file)
        await started(store)
        await store.aclose()
    assert proven > rounds(40) // 3, "it is seldom checked at all"


def damage(draw: random.Random, data: bytes) -> bytes:
    """Bits, a sector or a page changed, or the end cut off."""
    at = draw.randrange(len(data))
    kind = draw.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    size = (512, PAGE_BYTES)[kind - 2]
    at = at // size * size
    return data[:at] + draw.randbytes(size) + data[at + size :]


@pytest.mark.slow
async def test_a_changed_file_is_refused_or_nothing_is_lost(file: Path) -> None:
    """What the log has is read from there. A refused start changes nothing."""
    refused = 0
    for seed in range(rounds(60)):
        put_back(file, {})
        draw, nodes = random.Random(seed), Nodes()

        async def started(_: SqliteMetadataStore) -> None:
            pass

        await lives(file, draw, nodes, started)
        files = files_of(file)
        if not check_file(file).is_proven:
            continue
        put_back(file, {**files, "": damage(draw, files[""])})
        damaged = files_of(file)
        said = check_file(file).damage
        if said:
            refused += 1
            assert str(file) in said
            with pytest.raises(StoreDamaged):
                await SqliteMetadataStore.open(file)
            assert files_of(file) == damaged
        else:
            store = await SqliteMetadataStore.open(file)
            assert await read(store) == nodes, seed
            await store.aclose()
    assert refused > rounds(60) // 5


async def test_a_log_that_an_older_version_went_on_with(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It copied that log to the file, with what it had added, and began the next one."""
    monkeypatch.setattr(checkpoints, "LOG_PAGES", 1000)
    await filled(file, 30)
    assert check_file(file).is_proven
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA wal_autocheckpoint = 200").fetchall()
    salts, pages = content(file, "-wal")[16:24], 0
    while content(file, "-wal")[16:24] == salts:
        database.execute("UPDATE nodes SET value = ? WHERE name = '0005'", (b"%d" % pages,))
        pages += 1
    images = files_of(file)
    database.close()
    put_back(file, images)
    found = check_file(file)
    assert pages > 100
    assert (found.damage, found.is_proven) == ("", False)


async def test_a_log_that_a_program_copies_meanwhile(file: Path) -> None:
    """Its frames are not known here, so that the sums of before say nothing of their pages."""
    store = await SqliteMetadataStore.open(file)
    await store.put("/m/long", b"before" * 7000)
    for number in range(40):
        await store.put(f"/n/{number}", b"x" * 200)
    await store.put("/m/long", b"behind" * 7000)
    program = sqlite3.connect(file, isolation_level=None)
    ((is_busy, frames, copied),) = program.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    assert (is_busy, copied) == (0, frames)
    program.close()
    for number in range(40):
        await store.put(f"/n/{number}", b"y" * 200)
    await store.aclose()
    again = await SqliteMetadataStore.open(file)
    node = await again.get("/m/long")
    assert node is not None
    assert node.value == b"behind" * 7000
    await again.aclose()


async def test_a_byte_of_a_value(file: Path) -> None:
    """SQLite itself doesn't notice that."""
    await filled(file)
    data = content(file)
    replace(file, "", flip(data, data.index(b"0005" * 50)))
    with pytest.raises(
        StoreDamaged, match=r"metadata\.sqlite was changed by something else: 1 of its \d+ pages"
    ):
        await SqliteMetadataStore.open(file)


async def test_without_sums_the_structure_is_checked(file: Path) -> None:
    await filled(file)
    data = content(file)
    data = data[: 3 * PAGE_BYTES] + bytes(PAGE_BYTES) + data[4 * PAGE_BYTES :]
    put_back(file, {"": data})
    with pytest.raises(StoreDamaged, match=r"metadata\.sqlite is damaged \("):
        await SqliteMetadataStore.open(file)


async def test_a_cut_file(file: Path) -> None:
    await filled(file)
    replace(file, "", content(file)[: 8 * PAGE_BYTES + 100])
    with pytest.raises(StoreDamaged, match=r"was cut: \d+ pages at its end are missing"):
        await SqliteMetadataStore.open(file)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (b"", "is empty, though other files of it are there"),
        (None, "is gone, though other files of it are there"),
        (b"no database at all" * 1000, "was changed by something else|was cut"),
    ],
)
async def test_another_file_in_its_place(file: Path, what: bytes | None, said: str) -> None:
    await filled(file)
    replace(file, "", what)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=said):
            await SqliteMetadataStore.open(file)


async def test_a_file_that_had_no_log(file: Path) -> None:
    """As programs of SQLite's, or setting aside, leave it: its first page changes when it has."""
    await filled(file)
    for mode in ("DELETE", "WAL", "DELETE"):
        database = sqlite3.connect(file)
        assert database.execute(f"PRAGMA journal_mode = {mode}").fetchall() == [(mode.lower(),)]
        database.close()
        for _ in range(3):
            store = await SqliteMetadataStore.open(file)
            for number in range(20):
                await store.put(f"/n/{number:04}", b"")
            await store.aclose()
        assert check_file(file).is_proven


async def test_no_database(file: Path) -> None:
    replace(file, "", b"no database at all" * 1000)
    with pytest.raises(StoreDamaged, match="is not a database"):
        await SqliteMetadataStore.open(file)
    replace(file, "", None)
    await trio.Path(file).mkdir()
    with pytest.raises(StoreDamaged, match="is a directory, not a file"):
        await SqliteMetadataStore.open(file)


async def test_a_log_that_is_shorter_than_what_was_copied(file: Path) -> None:
    """Without its index too: SQLite would read old pages from it over new ones of the file."""
    await filled(file, 5)
    replace(file, "-shm", None)
    replace(file, "-wal", content(file, "-wal")[: 32 + 3 * (PAGE_BYTES + 24)])
    with pytest.raises(StoreDamaged, match=r"-wal has 3 valid pages of \d+ committed ones"):
        await SqliteMetadataStore.open(file)


async def test_sums_that_are_damaged_or_of_another_version_are_made_anew(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = await filled(file)
    good = content(file, ".sums")
    for bad in (b"", b"x", good[:-1], good[:4] + b"\2" + good[5:], good[:50] + b"x" + good[51:]):
        replace(file, ".sums", bad)
        store = await SqliteMetadataStore.open(file)
        found = {path: await store.get(path) for path in nodes}
        assert all(node and node.value == nodes[path] for path, node in found.items())
        await store.aclose()
        assert "it is made anew" in caplog.text
        assert check_file(file).is_proven


async def test_sums_that_cannot_be_written_cost_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And those of before don't count then."""
    nodes = await filled(file)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_sums", full)
    store = await SqliteMetadataStore.open(file)
    for number in range(200):
        await store.put(f"/n/{number:04}", bytes(3000))
    await store.aclose()
    assert caplog.text.count("has no new checksums") == 1
    assert len(content(file, "-wal")) < 100 * PAGE_BYTES, "the log is copied all the same"
    monkeypatch.undo()
    assert not check_file(file).is_proven
    assert check_file(file).damage == ""
    store = await SqliteMetadataStore.open(file)
    assert len(await store.children("/n")) == len(nodes)
    await store.aclose()
    assert check_file(file).is_proven


async def test_a_file_that_may_not_be_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(file)
    real = Path.stat

    def refuse(self: Path, **options: bool) -> object:
        if self == file:
            raise PermissionError(13, "Permission denied", str(file))
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(StoreOpenError, match="Permission denied; nothing is lost: give") as found:
        await SqliteMetadataStore.open(file)
    assert not isinstance(found.value, StoreDamaged)


async def test_pages_that_the_disk_does_not_give(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(file)
    real = os.pread

    def bad(descriptor: int, size: int, at: int) -> bytes:
        if size % PAGE_BYTES == 0 and at <= 4 * PAGE_BYTES < at + size:
            raise OSError(5, "Input/output error")
        return real(descriptor, size, at)

    monkeypatch.setattr(os, "pread", bad)
    with pytest.raises(StoreDamaged, match=r"1 of its \d+ pages are damaged \(5\)"):
        await SqliteMetadataStore.open(file)

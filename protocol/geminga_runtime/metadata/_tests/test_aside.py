"""What is saved of a damaged file of the SQLite store, and how it is set aside."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
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
from geminga_runtime.metadata.integrity import aside, checkpoints
from geminga_runtime.metadata.integrity.aside import set_aside
from geminga_runtime.metadata.integrity.check import StoreDamaged, StoreOpenError, check_file
from geminga_runtime.metadata.integrity.pages import path_of, read_rows
from geminga_runtime.metadata.sqlite import SqliteMetadataStore

ASIDE = "metadata.sqlite.damaged-1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOG_PAGES", 40)


async def saved_nodes(file: Path) -> Nodes:
    store = await SqliteMetadataStore.open(file)
    try:
        return await read(store)
    finally:
        await store.aclose()


@pytest.mark.slow
async def test_the_pages_hold_what_sqlite_reads(file: Path) -> None:
    """All of it and nothing else, with what the log has; values of many pages too."""
    for seed in range(rounds(12)):
        put_back(file, {})
        draw = random.Random(seed)
        store = await SqliteMetadataStore.open(file)
        for _ in range(draw.randrange(400)):
            path = f"/n/{draw.randrange(120):04}" + "x" * draw.choice((0, 5, 600, 5000))
            if await store.exists(path):
                await store.delete(path)
            else:
                await store.put(path, draw.randbytes(draw.choice((0, 1, 300, 5000, 40_000))))
        await store.put("/n/number-", b"", sequential=True)
        await store.put("/n/ephemeral", b"", epoch=store.session.epoch)
        before = {path: await store.get(path) for path in await read(store)}
        del before["/n/ephemeral"]
        if draw.random() < 0.5:
            await store.aclose()
            found = read_rows(file, check_file(file))
        else:  # as a kill leaves it
            images = files_of(file)
            await store.aclose()
            put_back(file, images)
            found = read_rows(file, check_file(file))
        rows = {path_of(names): row for names, row in found.rows.items()}
        assert rows.keys() == before.keys() | {"/", "/n"}, seed
        for path, node in before.items():
            assert node is not None
            assert (rows[path].value, rows[path].stat(0)) == (node.value, node.stat), seed
        assert rows["/n"].sequence == 1
        assert found.lost == set()


async def test_what_was_deleted_stays_so(file: Path) -> None:
    """Pages that are free hold old rows where SQLite doesn't clear them."""
    await filled(file)
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA secure_delete = OFF").fetchall()
    database.execute("DELETE FROM nodes WHERE name > '0003' AND parent = '/n'")
    database.close()
    assert b"0123" * 50 in content(file)
    rows = read_rows(file, check_file(file)).rows
    assert [name for parent, name in sorted(rows) if parent == "/n"] == [
        "0000", "0001", "0002", "0003",
    ]  # fmt: skip


async def test_a_changed_page_costs_what_is_in_it(file: Path) -> None:
    nodes = await filled(file)
    data = content(file)
    replace(file, "", flip(data, data.index(b"0005" * 50)))
    bad = check_file(file).bad_pages
    damaged = files_of(file)
    said = set_aside(file)
    assert said[0].endswith(" nodes of the metadata were saved")
    assert ASIDE in said[-1]
    found = await saved_nodes(file)
    assert len(bad) == 1
    assert 0 < len(nodes) - len(found) <= PAGE_BYTES // 200
    assert "/n/0005" not in found
    assert all(value == nodes[path] for path, value in found.items())
    assert files_of(file.with_name(ASIDE)) == damaged, "it is kept as it was"
    with pytest.raises(StoreDamaged):
        await SqliteMetadataStore.open(file.with_name(ASIDE))


async def test_the_pages_of_a_long_value_that_go_in_a_circle(file: Path) -> None:
    """Nothing tells how often to go round; a size that was changed may say for ever."""
    store = await SqliteMetadataStore.open(file)
    await store.put("/n/long", b"".join(b"%d" % number * 4096 for number in range(8)))
    await store.aclose()
    database = sqlite3.connect(file)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    database.close()
    data = content(file)
    first = data.index(b"3" * 1500) // PAGE_BYTES * PAGE_BYTES
    circle = (first // PAGE_BYTES + 1).to_bytes(4, "big")
    put_back(file, {"": data[:first] + circle + data[first + 4 :]})
    found = read_rows(file, check_file(file))
    assert found.lost == {("/n", "long")}
    assert found.rows.keys() == {("", ""), ("/", "n")}


@pytest.mark.slow
async def test_any_damage_of_a_proven_file_saves_nothing_wrong(file: Path) -> None:
    """Whatever is changed, in however many places."""
    nodes = await filled(file)
    files = files_of(file)
    for seed in range(rounds(40)):
        draw = random.Random(seed)
        data = files[""]
        for _ in range(draw.randrange(1, 5)):
            at = draw.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
            page = draw.choice((bytes(PAGE_BYTES), draw.randbytes(PAGE_BYTES)))
            data = data[:at] + page + data[at + PAGE_BYTES :]
        if draw.random() < 0.3:
            data = data[: draw.randrange(len(data))]
        put_back(file, {**files, "": data})
        if not check_file(file).damage:
            continue
        set_aside(file)
        found = await saved_nodes(file)
        assert all(value == nodes[path] for path, value in found.items()), seed


@pytest.mark.slow
async def test_without_sums_any_damage_is_survived(file: Path) -> None:
    """Then a changed byte may be within a value; all paths are ones of before, or look like it."""
    await filled(file)
    data = content(file)
    for seed in range(rounds(60)):
        draw = random.Random(seed)
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 200)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        put_back(file, {"": bytes(changed)})
        set_aside(file)
        await saved_nodes(file)


@pytest.mark.parametrize("what", [b"", None, b"no database at all" * 1000, bytes(3 * PAGE_BYTES)])
async def test_of_another_file_the_log_is_saved(file: Path, what: bytes | None) -> None:
    nodes = await filled(file)
    replace(file, "", what)
    set_aside(file)
    found = await saved_nodes(file)
    assert all(value == nodes[path] for path, value in found.items())
    assert found, "the newest ones are in the log"
    put_back(file, {} if what is None else {"": what})
    assert set_aside(file)[0] == "0 nodes of the metadata were saved"
    assert await saved_nodes(file) == {}


async def test_a_directory(file: Path) -> None:
    await trio.Path(file).mkdir()
    (await trio.Path(file / "kept").open("w")).wrapped.close()
    set_aside(file)
    assert await saved_nodes(file) == {}
    assert await trio.Path(file.with_name(ASIDE) / "kept").exists()


async def test_each_damage_has_its_own_number(file: Path) -> None:
    for number in (1, 2, 3):
        replace(file, "", b"%d" % number * PAGE_BYTES)
        assert f"metadata.sqlite.damaged-{number}" in set_aside(file)[-1]
    assert content(file.with_name("metadata.sqlite.damaged-2")) == b"2" * PAGE_BYTES


async def test_a_log_without_its_end(file: Path) -> None:
    """What is in front of the damage is saved, and what is behind it is kept."""
    store = await SqliteMetadataStore.open(file)
    for number in range(9):
        await store.put(f"/n/{number}", b"")
    images = files_of(file)
    await store.aclose()
    put_back(file, {**images, "-wal": flip(images["-wal"], len(images["-wal"]) // 2)})
    with pytest.raises(StoreDamaged, match=r"-wal has \d+ valid pages of \d+ committed ones"):
        await SqliteMetadataStore.open(file)
    set_aside(file)
    assert 0 < len(await saved_nodes(file)) < 9
    assert len(content(file.with_name(ASIDE), "-wal")) == len(images["-wal"])


async def test_nodes_above_others_are_made_anew(file: Path) -> None:
    """With numbers for their children that weren't given out."""
    await filled(file, 3)
    store = await SqliteMetadataStore.open(file)
    for _ in range(5):
        path, _ = await store.put("/m/ids/ID-", b"", sequential=True)
    await store.put(f"/m/{'y' * 2000}", bytes(9 * PAGE_BYTES))
    await store.aclose()
    found = read_rows(file, check_file(file))
    del found.rows["/m", "ids"]
    made = aside._parents({path_of(names): row for names, row in found.rows.items()})
    assert list(made) == ["/m/ids"]
    assert path == "/m/ids/ID-0000000004"
    assert made["/m/ids"].sequence == 5


async def test_a_copy_of_the_operators_is_not_taken_for_what_was_saved(file: Path) -> None:
    nodes = await filled(file)
    file.with_name(f"{file.name}.saved-2026-11-27").write_bytes(b"a copy")
    assert await saved_nodes(file) == nodes


async def test_a_running_store_is_left_alone(file: Path) -> None:
    await filled(file, 3)
    store = await SqliteMetadataStore.open(file)
    with pytest.raises(StoreOpenError, match="is in use by another process"):
        set_aside(file)
    await store.aclose()


async def test_no_room_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(file)
    data = content(file)
    replace(file, "", flip(data, data.index(b"0005" * 50)))
    damaged = files_of(file)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreOpenError, match=r"can't be set aside: .*No space left"):
        set_aside(file)
    monkeypatch.undo()
    assert files_of(file) == damaged
    set_aside(file)
    assert await saved_nodes(file)


CHILD = """
import os, signal, sys
from pathlib import Path
from geminga_runtime.metadata.integrity.aside import set_aside

steps = [int(sys.argv[2])]

def killed(name):
    real = getattr(os, name)

    def step(*arguments):
        if not steps[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        steps[0] -= 1
        return real(*arguments)

    setattr(os, name, step)

for name in ("replace", "fsync", "unlink"):
    killed(name)
set_aside(Path(sys.argv[1]))
"""


def killed_at(file: Path, step: int) -> bool:
    """Whether setting aside was killed in front of that step."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(file), str(step)], env=environment, check=False
    )
    assert done.returncode in (0, -9)
    return done.returncode == -9


@pytest.mark.slow
async def test_kill_between_the_steps(file: Path) -> None:
    """Nothing of before is gone, a start is refused until it is repeated, and then all is there."""
    nodes = await filled(file)
    data = content(file)
    replace(file, "", flip(data, data.index(b"0005" * 50)))
    damaged = files_of(file)
    step = 0
    while True:
        put_back(file, damaged)
        if not killed_at(file, step):
            break
        left = files_of(file.with_name(ASIDE))
        is_done = left == damaged and not list(file.parent.glob("*.saved-*"))
        for end, before in damaged.items():
            now = left.get(end, b"") if end in left else content(file, end)
            assert now == before, step
        if not is_done:
            with pytest.raises(StoreDamaged):
                await SqliteMetadataStore.open(file)
            killed_at(file, 2)
            if files_of(file.with_name(ASIDE)) != damaged or list(file.parent.glob("*.saved-*")):
                set_aside(file)
        found = await saved_nodes(file)
        assert len(nodes) - 30 < len(found) < len(nodes), step
        assert files_of(file.with_name(ASIDE)) == damaged, step
        assert not list(file.parent.glob("*.damaged-2*")), step
        step += 1
    assert step > 8

"""The SQLite store: the contract, and crashes and damage of its file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from geminga_runtime.ballast import Ballast
from geminga_runtime.metadata import sqlite_writer
from geminga_runtime.metadata._tests.contract import MetadataStoreContract
from geminga_runtime.metadata._tests.contract_session import drain
from geminga_runtime.metadata.api import (
    Change,
    MetadataError,
    MetadataStore,
    Notification,
    SessionExpired,
    StoreUnavailable,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.sqlite import READS_A_TURN, SqliteMetadataStore
from geminga_runtime.metadata.sqlite_file import StoreOpenError, open_writer

open_store = SqliteMetadataStore.open


class TestSqlite(MetadataStoreContract):
    async def open_store(self, folder: Path) -> MetadataStore:
        return await open_store(folder / "metadata.db")


async def test_who_reads_without_end_leaves_turns_to_others(file: Path) -> None:
    store = await open_store(file)
    await store.put("/a", b"")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for _ in range(10 * READS_A_TURN):
            await store.get("/a")
        # The counter's first turn counts nothing, and its last may come after ours.
        assert 8 <= turns <= 12
        nursery.cancel_scope.cancel()
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.exists("/a")
    assert scope.cancelled_caught
    await store.aclose()


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all transactions fail, until undone."""
    real = sqlite_writer.SqliteWriter._commit

    def full_disk(self: sqlite_writer.SqliteWriter, group: list[object]) -> None:
        def refuse(rows: object, now_ms: int) -> tuple[None, list[object]]:
            raise sqlite3.OperationalError("database or disk is full")

        real(self, [*group, sqlite_writer._Request(refuse)])

    monkeypatch.setattr(sqlite_writer.SqliteWriter, "_commit", full_disk)


async def test_sessions_of_one_file(file: Path) -> None:
    """Each owns its ephemeral nodes, and each is told of all changes."""
    store = await open_store(file)
    one, two = store.another_session(), store.another_session()
    for number, session in enumerate((store, one, two)):
        await session.put(f"/e/{number}", b"", epoch=session.session.epoch)
    node = await one.get("/e/1")
    assert node is not None
    assert node.stat.created_by_self
    node = await one.get("/e/2")
    assert node is not None
    assert node.stat.ephemeral
    assert not node.stat.created_by_self
    heard: list[Notification] = []
    async with two.watch("/e") as changes:
        with store.listen(heard.extend):
            await one.aclose()
            await one.aclose()
        assert drain(changes) == [("deleted", "/e/1"), ("children", "/e")]
    assert [(each.kind, each.path) for each in heard] == [
        (Change.DELETED, "/e/1"),
        (Change.CHILDREN, "/e"),
    ]
    assert list(await two.children("/e")) == ["0", "2"]
    with pytest.raises(SessionExpired):
        await one.get("/e/0")
    await two.put("/kept", b"")
    assert len(heard) == 2
    await store.aclose()
    for call in (two.get, two.children, two.delete):
        with pytest.raises(SessionExpired):
            await call("/kept")
    await two.aclose()
    store = await open_store(file)
    assert list(await store.children("/e")) == []
    await store.aclose()


async def test_numbers_of_sequential_nodes(file: Path) -> None:
    """They can be skipped, never taken back."""
    for store in (MemoryMetadataStore(), await open_store(file)):
        assert await store.next_number("/ids") == 0
        await store.skip_numbers("/ids", 7)
        path, _ = await store.put("/ids/ID-", b"", sequential=True)
        assert path == "/ids/ID-0000000007"
        await store.skip_numbers("/ids", 3)
        assert await store.next_number("/ids") == 8
        await store.aclose()


async def test_a_session_that_cannot_end_yet(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes are there until they can be deleted: a later `aclose` does."""
    store = await open_store(file)
    one = store.another_session()
    await one.put("/e", b"", epoch=one.session.epoch)
    fill_disk(monkeypatch)
    with pytest.raises(StoreUnavailable):
        await one.aclose()
    monkeypatch.undo()
    with pytest.raises(SessionExpired):
        await one.put("/f", b"")
    assert await store.exists("/e")
    await one.aclose()
    assert not await store.exists("/e")
    await store.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


async def test_a_commit_is_synced_and_so_is_the_name_of_a_new_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a loss of power leaves is what was answered."""
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd))[1])
    connection = open_writer(file, Ballast(file.with_name("ballast"), 0)).connection
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert file.parent.stat().st_ino in synced
    finally:
        connection.close()


async def test_data_survives_reopening(file: Path) -> None:
    store = await open_store(file)
    await store.put("/a/b", b"1")
    await store.put("/a/b", b"2")
    first, _ = await store.put("/ids/", b"", sequential=True)
    await store.put("/e/x", b"", epoch=store.session.epoch)
    before = await store.get("/a/b")
    await store.aclose()
    store = await open_store(file)
    assert await store.get("/a/b") == before
    assert not await store.exists("/e/x")
    assert await store.exists("/e")
    second, _ = await store.put("/ids/", b"", sequential=True)
    assert second > first
    await store.aclose()


async def test_clock_is_injected(file: Path) -> None:
    store = await open_store(file, clock_ms=lambda: 1234)
    _, stat = await store.put("/a", b"")
    assert (stat.ctime_ms, stat.mtime_ms) == (1234, 1234)
    await store.aclose()


async def test_only_one_process_writes(file: Path) -> None:
    store = await open_store(file)
    with pytest.raises(StoreOpenError, match="is in use by another process"):
        await open_store(file)
    await store.aclose()
    await (await open_store(file)).aclose()


async def test_reading_beside_the_writer(file: Path) -> None:
    with pytest.raises(StoreOpenError, match="is not there"):
        await open_store(file, read_only=True)
    store = await open_store(file)
    await store.put("/a", b"1")
    reader = await open_store(file, read_only=True)
    node = await reader.get("/a")
    assert node is not None
    assert node.value == b"1"
    await store.put("/a", b"2")
    node = await reader.get("/a")
    assert node is not None
    assert node.value == b"2"
    assert list(await reader.children("/")) == ["a"]
    with pytest.raises(MetadataError, match="reading only"):
        await reader.put("/a", b"3")
    with pytest.raises(MetadataError, match="reading only"):
        await reader.delete("/a")
    await reader.aclose()
    await store.aclose()
    reader = await open_store(file, read_only=True)
    assert await reader.exists("/a")
    await reader.aclose()


async def test_another_version(file: Path) -> None:
    await (await open_store(file)).aclose()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(
            StoreOpenError,
            match=r"format version 2, .* reads version 1: start the Geminga that wrote it",
        ):
            await open_store(file, read_only=read_only)


async def test_foreign_files(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    with pytest.raises(StoreOpenError, match="is not a Geminga metadata store"):
        await open_store(file)
    await trio.Path(file).write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreOpenError, match="is not a database; all topics"):
        await open_store(file)
    with pytest.raises(StoreOpenError, match="can't be used: No such file"):
        await open_store(file.parent / "absent" / "nothing")


async def test_a_failed_transaction_changes_nothing_and_fails_all_requests(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(file)
    await store.put("/a", b"1")
    fill_disk(monkeypatch)
    async with store.watch("/") as changes:
        for path in ("/a", "/b"):
            with pytest.raises(StoreUnavailable, match="disk is full"):
                await store.put(path, b"2")
        assert drain(changes) == []
    monkeypatch.undo()
    node = await store.get("/a")
    assert node is not None
    assert node.value == b"1"
    assert not await store.exists("/b")
    await store.put("/b", b"2")
    assert await store.exists("/b")
    await store.aclose()


async def test_a_defect_fails_the_request_but_not_the_thread(file: Path) -> None:
    store = await open_store(file)
    assert store._file.writer is not None

    def broken(rows: object, now_ms: int) -> tuple[None, list[object]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._file.writer.run(broken)
    await store.put("/a", b"")
    await store.aclose()


async def test_waiting_requests_are_one_transaction(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(file)
    sizes: list[int] = []
    real = sqlite_writer.SqliteWriter._commit

    def counted(self: sqlite_writer.SqliteWriter, group: list[object]) -> None:
        sizes.append(len(group))
        real(self, group)

    monkeypatch.setattr(sqlite_writer.SqliteWriter, "_commit", counted)
    async with trio.open_nursery() as nursery:
        for number in range(600):
            nursery.start_soon(store.put, f"/n/{number}", b"")
    assert sum(sizes) == 600
    assert max(sizes) <= sqlite_writer.GROUP_MAX
    assert len(sizes) < 60, "puts that wait together are not written one by one"
    await store.aclose()


async def test_closing_completes_earlier_requests(file: Path) -> None:
    store = await open_store(file)
    assert store._file.writer is not None
    go_on = threading.Event()

    def hold(rows: object, now_ms: int) -> tuple[None, list[Notification]]:
        go_on.wait()
        return None, []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._file.writer.run, hold)
        for number in range(50):
            nursery.start_soon(store.put, f"/n/{number}", b"")
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            go_on.set()
            await store.aclose()
    store = await open_store(file)
    assert len(await store.children("/n")) == 50
    await store.aclose()


CHILD = """
import sys, trio
from geminga_runtime.metadata.sqlite import SqliteMetadataStore

async def put(store, worker):
    for number in range(100_000):
        path, stat = await store.put(f"/w{worker}/n{number}", b"%d" % number)
        await store.put("/e/x", b"", epoch=store.session.epoch)
        sys.stdout.write(f"{path} {number}\\n")
        sys.stdout.flush()

async def main():
    store = await SqliteMetadataStore.open(sys.argv[1])
    async with trio.open_nursery() as nursery:
        for worker in range(8):
            nursery.start_soon(put, store, worker)

trio.run(main)
"""


def run_child_until_killed(file: Path, lines_min: int) -> dict[str, bytes]:
    """The puts that a child reported before kill -9."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(lines_min)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    pairs = [line.split() for line in lines if line.endswith(b"\n")]
    assert len(pairs) >= lines_min
    return {path.decode(): value for path, value in pairs}


@pytest.mark.slow
async def test_confirmed_changes_survive_kill(file: Path) -> None:
    answered: dict[str, bytes] = {}
    for lines_min in (1, 40, 400):
        answered |= run_child_until_killed(file, lines_min)
        store = await open_store(file)
        for path, value in answered.items():
            node = await store.get(path)
            assert node is not None, f"{path} was answered and is lost"
            assert node.value == value
        assert not await store.exists("/e/x")
        await store.aclose()


def write_torn(file: Path, data: bytes, log: bytes) -> None:
    file.write_bytes(data)
    Path(f"{file}-wal").write_bytes(log)
    Path(f"{file}-shm").unlink(missing_ok=True)


async def test_torn_log_of_the_last_transaction(file: Path) -> None:
    """A write-ahead log cut anywhere opens, and holds the transactions before the cut."""
    store = await open_store(file)
    for number in range(5):
        await store.put(f"/n{number}", bytes(2000))
    data = await trio.Path(file).read_bytes()
    log = await trio.Path(f"{file}-wal").read_bytes()
    await store.aclose()
    lengths = []
    for cut in range(0, len(log) + 1777, 1777):
        write_torn(file, data, log[:cut])
        store = await open_store(file)
        found = list(await store.children("/"))
        assert found == [f"n{number}" for number in range(len(found))]
        lengths.append(len(found))
        await store.aclose()
    assert lengths == sorted(lengths)
    assert lengths[-1] == 5

"""Helpers of the bookie's tests: packets, a collector of completions, a disk that fails on
demand."""

from __future__ import annotations

import errno
import shutil
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.lac import explicit_lac, packet_lac
from geminga_bookie.options import (
    BookieOptions,
    DiskOptions,
    GcOptions,
    JournalOptions,
)
from geminga_bookie.port import BookiePort, LacAnswer
from geminga_bookie.storage.disk import DiskFile, DiskUsage, OsDisk
from geminga_bookie.storage.journal_files import MARK_NAME
from geminga_protocol.buffers import Buffer

KEY = b"master-key-of-20-byt"
OTHER_KEY = b"another-key-20-bytes"
WAIT_MAX_S = 60


def packet(ledger_id: int, entry_id: int, lac: int = -1, size: int = 100) -> bytes:
    """A packet whose bytes tell which it is."""
    body = f"{ledger_id}:{entry_id}|".encode()
    body = (body * (size // len(body) + 1))[:size]
    return struct.pack(">qqqq", ledger_id, entry_id, lac, 0) + body


def packets(ledger_id: int, ids: Iterable[int], size: int = 100) -> list[bytes]:
    """Packets, each with the LAC of the entry before it."""
    return [packet(ledger_id, entry_id, entry_id - 1, size) for entry_id in ids]


def lac_packet(ledger_id: int, lac: int) -> bytes:
    """Of an explicit LAC, without a digest, as the packets of entries here."""
    return struct.pack(">qq", ledger_id, lac)


async def write_lac(bookie: BookiePort, ledger_id: int, lac: int, key: bytes = KEY) -> None:
    """Store an explicit LAC."""
    await bookie.write_lac(ledger_id, key, lac, lac_packet(ledger_id, lac))


def lac_in(answer: LacAnswer) -> int:
    """The higher of both."""
    explicit = explicit_lac(answer.explicit_packet or b"")
    return max(packet_lac(answer.last_packet or b""), explicit)


async def read_lac(bookie: BookiePort, ledger_id: int) -> int:
    """What the bookie knows."""
    return lac_in(await bookie.read_lac(ledger_id))


class Outcomes:
    """A `done` that collects, and can be waited for."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, BookkeeperError | None]] = []
        self._changed = trio.Event()

    def __call__(self, first: int, count: int, error: BookkeeperError | None) -> None:
        self.runs.append((first, count, error))
        self._changed.set()

    @property
    def total(self) -> int:
        return sum(count for _, count, _ in self.runs)

    @property
    def errors(self) -> list[BookkeeperError]:
        return [error for _, _, error in self.runs if error is not None]

    async def wait_for(self, total: int) -> None:
        with trio.fail_after(WAIT_MAX_S):
            while self.total < total:
                self._changed = trio.Event()
                await self._changed.wait()


async def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition holds, which the bookie's threads or tasks bring about."""
    with trio.fail_after(WAIT_MAX_S):
        while not is_so():  # noqa: ASYNC110 - they set no event of the test's
            await trio.sleep(0.002)


async def until_writable(bookie: BookiePort, writable: bool = True) -> None:
    """Wait until the bookie takes writes, or is read-only."""
    health = cast(InProcessBookie, bookie).health
    await until(lambda: (health.error is None) == writable)


async def add(
    bookie: BookiePort,
    ledger_id: int,
    ids: Sequence[int],
    *,
    key: bytes = KEY,
    recovery: bool = False,
    size: int = 100,
) -> None:
    """Add consecutive entries and wait; raises the first error."""
    outcomes = Outcomes()
    bookie.add(ledger_id, key, ids[0], packets(ledger_id, ids, size), outcomes, recovery=recovery)
    await outcomes.wait_for(len(ids))
    if outcomes.errors:
        raise outcomes.errors[0]


def add_by_fives(bookie: BookiePort, count: int) -> Outcomes:
    """Ask for entries of 1000 bytes of ledger 1, as adds of five; returns what becomes of them."""
    outcomes = Outcomes()
    for first in range(0, count, 5):
        bookie.add(1, KEY, first, packets(1, range(first, first + 5), 1000), outcomes)
    return outcomes


async def read_all(bookie: BookiePort, ledger_id: int, first: int, last: int) -> list[bytes]:
    """Entries first..last by as many reads as it takes."""
    found: list[bytes] = []
    while first + len(found) <= last:
        left = last - first - len(found) + 1
        found += await bookie.read(
            ledger_id, first + len(found), entries_max=left, bytes_max=1 << 20
        )
    return found


def small_options(directory: Path, **changes: object) -> BookieOptions:
    """A bookie with small files and long intervals, so that tests decide when it acts."""
    values: dict[str, object] = {
        "bookie_id": "bookie-1:3181",
        "journal_dirs": (directory / "journal",),
        "ledger_dirs": (directory / "ledgers",),
        "write_cache_bytes": 8 * 1024 * 1024,
        "read_cache_bytes": 1024 * 1024,
        "flush_interval_s": 3600.0,
        "journal": JournalOptions(segment_bytes=256 * 1024, first_segment_bytes=64 * 1024),
        "gc": GcOptions(gc_interval_s=3600.0),
        "disk": DiskOptions(usage_max=1.0, usage_low=1.0, check_interval_s=3600.0, ballast_bytes=0),
    }
    return BookieOptions(**{**values, **changes})


def three_directories(directory: Path, **changes: object) -> BookieOptions:
    """Such a bookie over two directories for journals, and three for entries and for indexes."""
    return replace(
        small_options(directory, **changes),
        journal_dirs=(directory / "j1", directory / "j2"),
        ledger_dirs=(directory / "l1", directory / "l2", directory / "l3"),
        index_dirs=(directory / "i1", directory / "i2", directory / "i3"),
    )


def copy_files(directory: Path, target: Path) -> None:
    """The files as a kill would leave them now.

    Copies again if the journal's maker renamed a file meanwhile, or a mark moved: a flush that ends
    during the copy isn't in all of it, and the journal of the old mark may be gone.
    """
    for _ in range(20):
        marks = _marks(directory)
        try:
            shutil.copytree(directory, target, ignore=shutil.ignore_patterns("next.tmp"))
        except shutil.Error:
            pass
        else:
            if _marks(directory) == marks == _marks(target):
                return
        shutil.rmtree(target)
    raise AssertionError("the files never stood still")


def _marks(directory: Path) -> dict[Path, bytes]:
    return {each.relative_to(directory): each.read_bytes() for each in directory.rglob(MARK_NAME)}


async def fill_tables(options: BookieOptions, end: int = 400) -> None:
    """Two entries of each ledger up to `end`, in an index whose tables have several blocks."""
    async with open_bookie(options) as port:
        for ledger_id in range(1, end):
            await add(port, ledger_id, range(2))
    async with open_bookie(options):
        pass


def damage_tables(index: Path, upto: int = 64) -> None:
    """Other bytes in the first block, or up to there, of each of RocksDB's tables."""
    tables = list(index.glob("*.sst"))
    assert tables
    for table in tables:
        data = bytearray(table.read_bytes())
        data[16:upto] = bytes(byte ^ 0x55 for byte in data[16:upto])
        table.write_bytes(data)


def ledgers(*ids: int) -> Callable[[], AsyncIterator[int]]:
    """The ledgers with metadata."""

    async def live() -> AsyncIterator[int]:
        for ledger_id in ids:
            yield ledger_id

    return live


class BadSector(OsDisk):
    """A disk that doesn't give a byte of the first entry log."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        """Where; -1 when it can be read again."""

    def open(
        self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
    ) -> DiskFile:
        file = super().open(path, create=create, writable=writable, direct=direct)
        return _BadFile(file, self) if path.name == "00000001.log" else file


class _BadFile:
    def __init__(self, file: DiskFile, disk: BadSector) -> None:
        self._file, self._disk = file, disk
        self.write, self.write_durably, self.sync = file.write, file.write_durably, file.sync
        self.reserve, self.drop_cached = file.reserve, file.drop_cached
        self.size, self.close = file.size, file.close

    def read(self, size_bytes: int, offset: int) -> bytes:
        if offset <= self._disk.at < offset + size_bytes:
            raise OSError(errno.EIO, "Input/output error")
        return self._file.read(size_bytes, offset)


class _WatchedFile:
    def __init__(self, disk: FaultyDisk, file: DiskFile, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path
        self.read, self.size, self.close = file.read, file.size, file.close
        self.drop_cached = file.drop_cached

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.step("write", self._path)
        self._file.write(buffers, offset)

    def write_durably(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.step("write", self._path)
        if self._disk.fault("sync", self._path):
            # Written, and not known to be on disk.
            self._file.write(buffers, offset)
        self._disk.step("sync", self._path)
        self._file.write_durably(buffers, offset)

    def reserve(self, size_bytes: int) -> None:
        self._disk.step("write", self._path)
        self._file.reserve(size_bytes)

    def sync(self) -> None:
        self._disk.step("sync", self._path)
        self._file.sync()


class FaultyDisk(OsDisk):
    """Real files; operations named by `fault` fail, and the test sets the free space."""

    def __init__(self) -> None:
        self.fault: Callable[[str, Path], int] = lambda _operation, _path: 0
        self.room: DiskUsage | None = None
        self.steps: list[tuple[str, Path]] = []

    def fail(self, operation: str, suffix: str, code: int = errno.EIO) -> None:
        """From now on that operation on files ending so answers that error."""
        self.fault = lambda name, path: (
            code if name == operation and path.name.endswith(suffix) else 0
        )

    def heal(self) -> None:
        """Nothing fails any more."""
        self.fault = lambda _operation, _path: 0

    def step(self, operation: str, path: Path) -> None:
        self.steps.append((operation, path))
        code = self.fault(operation, path)
        if code:
            raise OSError(code, f"injected at {operation}", str(path))

    def open(
        self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
    ) -> DiskFile:
        if create:
            self.step("create", path)
        file = super().open(path, create=create, writable=writable, direct=direct)
        return _WatchedFile(self, file, path)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        super().remove(path)

    def usage(self, directory: Path) -> DiskUsage:
        return self.room if self.room is not None else super().usage(directory)


class SlowFlush:
    """Entry log writes wait until the test lets them."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.go = threading.Event()
        disk.fault = self

    def __call__(self, operation: str, path: Path) -> int:
        if operation == "write" and path.suffix == ".log":
            self.go.wait(WAIT_MAX_S)
        return 0


def fail_directory(disk: FaultyDisk, name: str) -> None:
    """From now on no file in directories of that name can be made or written."""
    disk.fault = lambda operation, path: (
        errno.EIO if path.parent.name == name and operation in ("create", "write") else 0
    )

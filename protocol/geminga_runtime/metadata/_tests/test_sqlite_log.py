"""A log of SQLite's that was cut or changed, and those that a crash leaves."""

from __future__ import annotations

import random
import sqlite3
import struct
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from geminga_protocol._tests.rounds import rounds
from geminga_runtime.metadata import sqlite_log
from geminga_runtime.metadata.integrity.aside import set_aside
from geminga_runtime.metadata.integrity.check import StoreDamaged
from geminga_runtime.metadata.integrity.log_format import running_sum
from geminga_runtime.metadata.sqlite import SqliteMetadataStore
from geminga_runtime.metadata.sqlite_log import examine

HEADER_BYTES = 32
FRAME_BYTES = 24 + 4096
SECTOR_BYTES = 512


class Image(NamedTuple):
    """The files of a moment, behind a commit."""

    data: bytes
    log: bytes
    index: bytes | None
    commits: int

    def write(self, file: Path) -> None:
        file.write_bytes(self.data)
        Path(f"{file}-wal").write_bytes(self.log)
        index = Path(f"{file}-shm")
        if self.index is None:
            index.unlink(missing_ok=True)
        else:
            index.write_bytes(self.index)


def find_damage(file: Path) -> str:
    return examine(file).damage


def history(file: Path, sizes: list[int], log_pages_max: int = 1000) -> list[Image]:
    """The files behind each of the commits, one row each, written as the store does it."""
    images = []
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL").fetchall()
    database.execute("PRAGMA synchronous = FULL")
    database.execute(f"PRAGMA wal_autocheckpoint = {log_pages_max}").fetchall()
    database.execute("CREATE TABLE IF NOT EXISTS n (number INTEGER PRIMARY KEY, value BLOB)")
    for number, size in enumerate(sizes):
        value = random.Random(number).randbytes(size)
        database.execute("INSERT INTO n VALUES (?, ?)", (number, value))
        parts = [Path(f"{file}{end}").read_bytes() for end in ("", "-wal", "-shm")]
        images.append(Image(parts[0], parts[1], parts[2], number + 1))
    database.close()
    return images


def commits_found(file: Path) -> int:
    """How many of the rows are there. They must be the first ones, and whole."""
    database = sqlite3.connect(file)
    rows = database.execute("SELECT number, value FROM n ORDER BY number").fetchall()
    database.close()
    assert [number for number, _ in rows] == list(range(len(rows)))
    assert all(value == random.Random(number).randbytes(len(value)) for number, value in rows)
    return len(rows)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.sqlite"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Image]:
    draw = random.Random(1)
    sizes = [draw.choice([10, 500, 5_000, 12_000]) for _ in range(16)]
    return history(tmp_path_factory.mktemp("history") / "m.sqlite", sizes)


@pytest.fixture(scope="module")
def second_lap(tmp_path_factory: pytest.TempPathFactory) -> list[Image]:
    """Of a log that was begun anew: behind its end are frames of before."""
    found = history(tmp_path_factory.mktemp("lap") / "m.sqlite", [30_000] * 12 + [3000] * 12, 60)
    laps = [image.log[16:24] for image in found]
    begun = laps.index(laps[-1])
    assert begun, "it was not begun anew"
    return found[begun - 1 :]


def lose_power(draw: random.Random, images: list[Image]) -> Image:
    """What may be there after a loss of power in the last commit: any sectors of it, and any index
    of before.
    """
    at = draw.randrange(1, len(images))
    synced, written = images[at - 1], images[at]
    log = bytearray(written.log[: draw.choice([len(synced.log), len(written.log)])])
    if len(log) > len(synced.log):
        del log[draw.randrange(len(synced.log), len(log)) :]
    for place in range(0, len(log), SECTOR_BYTES):
        piece = slice(place, place + SECTOR_BYTES)
        old = synced.log[piece]
        if draw.random() < 0.3:
            log[piece] = old + bytes(len(log[piece]) - len(old))
    log[:HEADER_BYTES] = written.log[:HEADER_BYTES]  # synced before a frame is written
    index = draw.choice([None, b"", *(each.index for each in images[:at])])
    return Image(synced.data, bytes(log), index, synced.commits)


@pytest.mark.parametrize("laps", ["images", "second_lap"])
def test_a_loss_of_power_is_no_damage(
    file: Path, laps: str, request: pytest.FixtureRequest
) -> None:
    """And all that was synced is there."""
    images: list[Image] = request.getfixturevalue(laps)
    for seed in range(rounds(160)):
        image = lose_power(random.Random(seed), images)
        image.write(file)
        assert find_damage(file) == "", seed
        assert commits_found(file) >= image.commits, seed


def change(draw: random.Random, log: bytes, start: int = 0) -> bytes:
    """The log cut, with a bit changed or with a sector or page of zeros."""
    at = draw.randrange(start, len(log))
    kind = draw.randrange(4)
    if kind == 0:
        return log[:at]
    if kind == 1:
        return log[:at] + bytes([log[at] ^ 1 << draw.randrange(8)]) + log[at + 1 :]
    size = (SECTOR_BYTES, FRAME_BYTES)[kind - 2]
    return log[:at] + bytes(len(log[at : at + size])) + log[at + size :]


@pytest.mark.parametrize("laps", ["images", "second_lap"])
def test_a_changed_log_is_refused_or_nothing_is_lost(
    file: Path, laps: str, request: pytest.FixtureRequest
) -> None:
    """As long as the index beside it is there, as after a kill or an orderly end."""
    images: list[Image] = request.getfixturevalue(laps)
    refused = 0
    for seed in range(rounds(160)):
        draw = random.Random(seed)
        image = draw.choice(images)
        changed = image._replace(log=change(draw, image.log))
        changed.write(file)
        if find_damage(file):
            refused += 1
        else:
            assert commits_found(file) == image.commits, seed
    assert refused > 10


def test_without_an_index_the_last_three_commits_at_most_are_lost_unseen(
    file: Path, images: list[Image]
) -> None:
    """Unless the log was cut: that looks as if nothing had come behind."""
    refused = 0
    for seed in range(rounds(160)):
        draw = random.Random(seed)
        image = draw.choice(images)
        log = change(draw, image.log)
        if len(log) < len(image.log) or not any(log[:HEADER_BYTES]):
            continue
        image._replace(log=log, index=None).write(file)
        if find_damage(file):
            refused += 1
        else:
            assert commits_found(file) >= image.commits - 3, seed
    assert refused > 10


def test_a_log_that_is_gone(file: Path, images: list[Image]) -> None:
    images[-1]._replace(log=b"").write(file)
    assert "gone or empty" in find_damage(file)
    Path(f"{file}-wal").unlink()
    assert "gone or empty" in find_damage(file)
    Path(f"{file}-shm").unlink()
    assert find_damage(file) == ""


def test_a_damaged_header(file: Path, images: list[Image]) -> None:
    for at in range(HEADER_BYTES):
        log = bytearray(images[-1].log)
        log[at] ^= 1
        images[-1]._replace(log=bytes(log), index=None).write(file)
        assert find_damage(file), at


def test_an_index_of_another_log_says_nothing(file: Path, images: list[Image]) -> None:
    """A loss of power may leave that of the log before."""
    index = bytearray(images[-1].index or b"")
    for copy in (0, 48):
        index[copy + 32 : copy + 40] = bytes(8)
        checksum = running_sum("=", bytes(index[copy : copy + 40]), (0, 0))
        struct.pack_into("=II", index, copy + 40, *checksum)
    images[3]._replace(index=bytes(index)).write(file)
    assert sqlite_log._read_index(Path(f"{file}-shm")) is not None
    assert find_damage(file) == ""


class Log:
    """Writes frames as SQLite does."""

    def __init__(self) -> None:
        head = struct.pack(">IIII8s", 0x377F0682, 3007000, 512, 0, b"saltsalt")
        self.checksums = [running_sum("<", head, (0, 0))]
        self.data = bytearray(head + struct.pack(">II", *self.checksums[0]))

    def commit(self, behind: int, count: int, text: bytes) -> None:
        """A commit of `count` frames behind that frame; what it doesn't overwrite stays."""
        del self.checksums[behind + 1 :]
        for number in range(behind, behind + count):
            page = text * (512 // len(text))
            head = struct.pack(">II", number + 1, number + 1 == behind + count)
            checksum = running_sum("<", head + page, self.checksums[-1])
            self.checksums.append(checksum)
            at = 32 + number * 536
            self.data[at : at + 536] = head + b"saltsalt" + struct.pack(">II", *checksum) + page

    def tear(self, number: int) -> None:
        """That frame was not written."""
        self.data[32 + number * 536 : 32 + (number + 1) * 536] = bytes(536)

    def damage(self, file: Path) -> str:
        Path(f"{file}-wal").write_bytes(self.data)
        return find_damage(file)


def test_commits_that_failed_leave_frames_behind(file: Path) -> None:
    """Their syncs failed, one after the other, then power was lost: they prove nothing."""
    log = Log()
    log.commit(0, 2, b"kept")
    log.commit(2, 12, b"fail")
    log.commit(2, 6, b"also")
    log.commit(2, 2, b"good")
    log.tear(4)
    assert log.damage(file) == ""
    log.commit(4, 1, b"next")
    assert log.damage(file) == ""


def test_a_last_frame_that_is_repeated(file: Path) -> None:
    """As on disks whose sectors are larger than pages: no other commit."""
    log = Log()
    log.commit(0, 2, b"kept")
    log.commit(2, 1, b"last")
    frame = log.data[-536:]
    for _ in range(3):
        checksum = running_sum("<", bytes(frame[:8] + frame[24:]), log.checksums[-1])
        log.checksums.append(checksum)
        log.data += frame[:16] + struct.pack(">II", *checksum) + frame[24:]
    log.tear(0)
    assert log.damage(file), "a commit in front of them is lost"
    log.commit(0, 2, b"kept")
    log.data = log.data[: 32 + 2 * 536] + bytes(536) + log.data[32 + 3 * 536 :]
    assert log.damage(file) == ""


def test_a_long_log_is_checked_in_part(
    file: Path,
    images: list[Image],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sqlite_log, "LOG_BYTES_CHECKED_MAX", 50_000)
    images[-1].write(file)
    assert find_damage(file) == ""
    assert "longer than what is checked" in caplog.text
    log = bytearray(images[-1].log)
    log[40_000] ^= 1
    images[-1]._replace(log=bytes(log)).write(file)
    assert find_damage(file)


async def test_a_damaged_store_is_refused_until_it_is_set_aside(tmp_path: Path) -> None:
    """Here all of the log was copied to the file before, so that nothing is lost."""
    file = tmp_path / "metadata.sqlite"
    store = await SqliteMetadataStore.open(file)
    for number in range(20):
        await store.put(f"/n/{number:02}", b"")
    await store.aclose()
    log = trio.Path(f"{file}-wal")
    data = bytearray(await log.read_bytes())
    data[len(data) // 2] ^= 1
    await log.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"metadata\.sqlite-wal has \d+ valid pages of \d+"):
            await SqliteMetadataStore.open(file)
    assert await log.read_bytes() == data, "a refused start changes nothing"
    set_aside(file)
    store = await SqliteMetadataStore.open(file)
    assert len(await store.children("/n")) == 20
    await store.put("/more", b"")
    await store.aclose()
    store = await SqliteMetadataStore.open(file)
    assert await store.exists("/more")
    await store.aclose()

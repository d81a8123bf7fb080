"""Entry logs whose headers can't be read, are somebody else's, or name a log that is another one
now: nothing is removed, taken for true or set aside for it that may be needed (BK-04, BK-06).
"""

from __future__ import annotations

import errno
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import KEY, add, ledgers, packets, read_all, small_options
from geminga_bookie._tests.test_entry_log_forgery import (
    forged_block,
    without_headers,
    write_version_1,
)
from geminga_bookie.errors import DataDirError, LedgerFenced
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.disk import OsDisk
from geminga_bookie.storage.entry_logs.files import UNSALTED_NAME, EntryLogs
from geminga_bookie.storage.entry_logs.format import (
    KIND_ENTRIES,
    NO_SALT,
    encode_block,
    file_header,
    parse_file_header,
)
from geminga_bookie.storage.entry_logs.reading import LogFile, location_of, scan_blocks
from geminga_bookie.storage.journal_format import crc32c
from geminga_bookie.storage.location_index import LocationIndex

Broken = Callable[[Path, Callable[[int], bool]], None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Lets reads of a log fail where it is said."""
    read = LogFile.read

    def fail(path: Path, where: Callable[[int], bool]) -> None:
        def bad(self: LogFile, size_bytes: int, offset: int) -> bytes:
            if self.path == path and where(offset):
                raise OSError(errno.EIO, "Input/output error", str(path))
            return read(self, size_bytes, offset)

        monkeypatch.setattr(LogFile, "read", bad)

    return fail


def log_names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "ledgers").glob("*.log*"))


async def one_log(options: BookieOptions) -> None:
    """Of ledger 1, with five entries."""
    async with open_bookie(options) as port:
        await add(port, 1, range(5))
        await cast(InProcessBookie, port).checkpointer.checkpoint()


async def fenced_in_a_log_of_its_own(directory: Path) -> tuple[BookieOptions, Path]:
    """Log 2 has nothing but that ledger 7 is fenced."""
    options = small_options(directory, replicas_elsewhere=True, entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await add(port, 7, range(5))
        await bookie.checkpointer.checkpoint()
        await port.fence(7, KEY)
        await bookie.checkpointer.checkpoint()
        await add(port, 8, range(5))
        await bookie.checkpointer.checkpoint()
    return options, directory / "ledgers" / "00000002.log"


@pytest.mark.parametrize("how", ["all", "headers", "damaged"])
async def test_a_log_whose_headers_cannot_be_read_is_not_removed(
    tmp_path: Path, broken: Broken, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The index has no block in it: that doesn't say that it has nothing."""
    options, second = await fenced_in_a_log_of_its_own(tmp_path)
    content = second.read_bytes()
    if how == "damaged":
        without_headers(second)
    else:
        broken(second, lambda offset: how == "all" or offset < 8192)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for _ in range(2):
            report = await bookie.gc.collect(ledgers(7, 8), threshold=0.99)
            assert (report.logs_removed, report.logs_compacted) == (0, 0)
        assert caplog.text.count(f"{second} can't be read, and is kept as it is") == 1
    broken(second, lambda _: False)
    second.write_bytes(content)
    shutil.rmtree(tmp_path / "ledgers" / "index")
    async with open_bookie(options) as port:
        with pytest.raises(LedgerFenced):
            await add(port, 7, [5])


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("damaged", [-1, 0, 4096])
async def test_what_cannot_be_read_now_is_not_set_aside(
    tmp_path: Path, broken: Broken, elsewhere: bool, damaged: int
) -> None:
    """Nor if the other header is damaged."""
    options = small_options(tmp_path, replicas_elsewhere=elsewhere, entry_log_bytes_max=1)
    await one_log(options)
    first = tmp_path / "ledgers" / "00000001.log"
    shutil.rmtree(tmp_path / "ledgers" / "index")
    if damaged >= 0:
        data = bytearray(first.read_bytes())
        data[damaged] ^= 1
        first.write_bytes(data)
    broken(first, lambda offset: offset // 4096 * 4096 != damaged)
    with pytest.raises(DataDirError, match=first.name):
        async with open_bookie(options):
            pass
    assert not list(first.parent.glob("*.unread"))
    broken(first, lambda _: False)
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


async def test_with_an_index_the_bookie_starts_without_the_headers(
    tmp_path: Path, broken: Broken
) -> None:
    """And reads by the index, whose places and sizes the blocks must have."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    await one_log(options)
    broken(tmp_path / "ledgers" / "00000001.log", lambda offset: offset < 8192)
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


def evil_payload(what: str, before: int) -> bytes:
    """For a log of version 1: a header where later ones have their second, and what it promises.
    `before` bytes stand in the file before it.
    """
    salt = b"evilsalt"
    header = file_header(1, 0, salt)[:40]
    if what == "another version":
        start = struct.pack("<4sIQQ", b"GEML", 99, 1, 0)
        header = (start + crc32c(start).to_bytes(4, "little")).ljust(40, b"\0")
    payload = bytearray(9000)
    payload[4096 - before : 4136 - before] = header
    block = forged_block(1, salt)
    payload[8192 - before : 8192 - before + len(block)] = block
    return bytes(payload)


@pytest.mark.parametrize("lost", ["header", "first page"])
@pytest.mark.parametrize("what", ["this version", "another version"])
async def test_no_client_writes_the_header_of_an_old_log(
    tmp_path: Path, what: str, lost: str
) -> None:
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options):
        pass
    folder = tmp_path / "ledgers"
    shutil.rmtree(folder / "index")
    (folder / UNSALTED_NAME).unlink()  # as an older version left it
    before = len(b"".join(encode_block(KIND_ENTRIES, 2, 0, [b""], NO_SALT)[0])) + 32
    evil = encode_block(KIND_ENTRIES, 2, 0, [evil_payload(what, before)], NO_SALT)[0]
    good = encode_block(KIND_ENTRIES, 1, 0, packets(1, range(5)), NO_SALT)[0]
    write_version_1(folder, b"".join(evil), b"".join(good)).close()
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))
    path = folder / "00000001.log"
    data = bytearray(path.read_bytes())
    data[: 8 if lost == "header" else 4096] = bytes(8 if lost == "header" else 4096)
    path.write_bytes(data)
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))
    shutil.rmtree(folder / "index")
    async with open_bookie(options) as port:
        if lost == "header":
            assert await read_all(port, 1, 0, 4) == packets(1, range(5))
        else:
            assert "00000001.log.unread" in log_names(tmp_path)


@pytest.mark.parametrize("text", [None, b"", b"one\n", b"1"])
async def test_without_the_note_all_logs_may_be_of_version_1(
    tmp_path: Path, text: bytes | None
) -> None:
    """It is noted once, and again if it is lost."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    note = tmp_path / "ledgers" / UNSALTED_NAME
    await one_log(options)
    last = len(log_names(tmp_path))
    assert note.read_bytes() == b"0\n"
    if text is None:
        note.unlink()
    else:
        note.write_bytes(text)
    async with open_bookie(options) as port:
        await add(port, 2, range(5))
        await cast(InProcessBookie, port).checkpointer.checkpoint()
    assert note.read_bytes() == b"%d\n" % last


async def compacted(directory: Path) -> tuple[BookieOptions, Path, bytes]:
    """A log that was compacted from log 1, and what that had."""
    options = small_options(directory, replicas_elsewhere=True, entry_log_bytes_max=1)
    folder = directory / "ledgers"
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await add(port, 1, range(5))
        await add(port, 2, range(5))
        await bookie.checkpointer.checkpoint()
        await add(port, 3, range(5))
        await bookie.checkpointer.checkpoint()
        old = (folder / "00000001.log").read_bytes()
        assert (await bookie.gc.collect(ledgers(1, 3), threshold=0.99)).logs_compacted == 1
    path = folder / "00000003.log"
    assert parse_file_header(path.read_bytes()).compacted_from == 1
    for other in folder.glob("*.log"):
        if other != path:  # of ledgers that are deleted
            other.unlink()
    return options, path, old


@pytest.mark.parametrize("lose_index", [True, False])
async def test_a_log_that_is_brought_back_meets_no_other_of_its_source(
    tmp_path: Path, lose_index: bool
) -> None:
    """It was set aside; the logs that came since have other numbers than it and its source."""
    options, path, _ = await compacted(tmp_path)
    content = path.read_bytes()
    without_headers(path)
    shutil.rmtree(path.parent / "index")
    for ledger_id in (10, 11, 12):
        async with open_bookie(options) as port:
            await add(port, ledger_id, range(5))
            await cast(InProcessBookie, port).checkpointer.checkpoint()
    aside = path.with_name(f"{path.name}.unread")
    assert aside.name in log_names(tmp_path)
    assert path.name not in log_names(tmp_path)
    assert "00000001.log" not in log_names(tmp_path)
    aside.unlink()
    path.write_bytes(content)
    if lose_index:
        shutil.rmtree(path.parent / "index")
    async with open_bookie(options) as port:
        assert path.exists()
        if lose_index:
            assert await read_all(port, 1, 0, 4) == packets(1, range(5))


@pytest.mark.parametrize("with_index", [True, False])
async def test_another_log_with_the_sources_number_removes_nothing(
    tmp_path: Path, with_index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever gave it that number: it lacks the blocks that the compacted one has."""
    options, path, _ = await compacted(tmp_path)
    other = await compacted(tmp_path / "other")
    source = path.with_name("00000001.log")
    source.write_bytes(other[1].read_bytes()[:8192])
    index = path.parent / "index"
    if with_index:  # which has none of the log's blocks
        shutil.rmtree(index)
        made = LocationIndex(index)
        made.write(completes=True)
        made.close()
    else:
        shutil.rmtree(index)
    async with open_bookie(options) as port:
        assert path.exists()
        assert source.exists()
        assert f"{path} was compacted from {source}, which is another log now" in caplog.text
        if not with_index:
            assert await read_all(port, 1, 0, 4) == packets(1, range(5))


@pytest.mark.parametrize("is_bad", [False, True])
async def test_without_index_a_compacted_log_stays_if_its_source_cannot_be_read(
    tmp_path: Path, is_bad: bool
) -> None:
    """The bookie was killed before it removed the source."""
    options, path, old = await compacted(tmp_path)
    source = path.with_name("00000001.log")
    source.write_bytes(old)
    if is_bad:
        without_headers(source)
    shutil.rmtree(path.parent / "index")
    async with open_bookie(options) as port:
        assert path.exists() == is_bad
        assert source.exists() != is_bad
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


async def test_of_two_logs_that_the_index_names_none_is_removed(tmp_path: Path) -> None:
    options, path, old = await compacted(tmp_path)
    source = path.with_name("00000001.log")
    source.write_bytes(old)
    index = LocationIndex(path.parent / "index")
    logs = EntryLogs(OsDisk(), path.parent)
    with logs.reading(1) as file:
        named = [location_of(head, 1, offset) for offset, head in scan_blocks(file)]
    index.write([each for each in named if each.ledger_id == 1])
    logs.close()
    index.close()
    async with open_bookie(options) as port:
        assert path.exists()
        assert source.exists()
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


@pytest.mark.parametrize("number", [1, 2])
def test_the_second_header_is_of_the_log_that_the_name_says(tmp_path: Path, number: int) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    header = file_header(number, 0, b"12345678")[:4096]
    logs.path(1).write_bytes(bytes(4096) + header)
    logs.created(logs.new_id())
    with logs.reading(1) as file:
        assert (file.header is not None) == (number == 1)
    logs.close()


async def test_a_copy_of_a_log_removes_nothing(tmp_path: Path) -> None:
    """Its header names another number than its name does."""
    options, path, old = await compacted(tmp_path)
    copy = path.with_name("0000000f.log")
    copy.write_bytes(path.read_bytes())
    source = path.with_name("00000001.log")
    source.write_bytes(old)
    path.unlink()
    shutil.rmtree(path.parent / "index")
    async with open_bookie(options):
        assert copy.exists()
        assert source.exists()


async def test_where_a_log_cannot_be_read_others_are_compacted(
    tmp_path: Path, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    options = small_options(tmp_path, entry_log_bytes_max=1)
    first = tmp_path / "ledgers" / "00000001.log"
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for ledger_id in (1, 3):
            await add(port, ledger_id, range(5))
            await add(port, ledger_id + 1, range(5))
            await bookie.checkpointer.checkpoint()
        await add(port, 5, range(5))
        await bookie.checkpointer.checkpoint()
        await bookie.gc.collect(ledgers(1, 2, 3, 4, 5))  # the maps are known now
        broken(first, lambda offset: offset > 8192)
        report = await bookie.gc.collect(ledgers(1, 3, 5), threshold=0.99)
        assert report.logs_compacted == 1
        assert f"an entry log can't be compacted now: [Errno 5] Input/output error: '{first}'" in (
            caplog.text
        )
        assert first.exists()
        broken(first, lambda _: False)
        assert (await bookie.gc.collect(ledgers(1, 3, 5), threshold=0.99)).logs_compacted == 1
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


def test_numbers_of_logs_that_were_set_aside_are_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "0000000a.log.unread__").touch()
    (tmp_path / "00000004.log").touch()
    logs = EntryLogs(OsDisk(), tmp_path)
    assert logs.ids() == [4]
    assert logs.new_id() == 11
    logs.close()

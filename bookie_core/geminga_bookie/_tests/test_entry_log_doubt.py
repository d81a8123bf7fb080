"""Entry logs of which a part can't be read, at a running bookie: what is kept, set aside, told, and
put in doubt (BK-02, BK-04, BK-06, BK-12).
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import (
    KEY,
    FaultyDisk,
    add,
    copy_files,
    ledgers,
    packets,
    read_all,
    small_options,
    until,
)
from geminga_bookie._tests.test_entry_log_forgery import without_headers
from geminga_bookie.errors import EntryLost, LedgerFenced, UnknownLedgerState
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.data_dirs import UNREAD_NAME
from geminga_bookie.storage.doubt import LIMBO_NAME
from geminga_bookie.storage.entry_logs.format import KIND_LEDGER
from geminga_bookie.storage.entry_logs.reading import LogFile


async def two_logs(directory: Path, options: BookieOptions) -> list[Path]:
    """Of ledger 1, and of ledger 2; those that follow have no entries."""
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for ledger_id in (1, 2):
            await add(bookie, ledger_id, range(5))
            await bookie.checkpointer.checkpoint()
    return sorted((directory / "ledgers").glob("*.log"))[:2]


async def test_a_log_without_headers_is_collected_by_the_index(tmp_path: Path) -> None:
    """What the index doesn't have of it was never promised: a loss of power leaves such a log."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    first, second = await two_logs(tmp_path, options)
    without_headers(first)
    torn = first.with_name("0000ffff.log")
    torn.write_bytes(bytes(12288))
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(1), threshold=0.9)
        assert first.exists()
        assert not second.exists()
        assert not torn.exists()
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))
        await bookie.gc.collect(ledgers())
        assert not first.exists()


async def test_without_index_too_a_log_without_headers_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows any more what is in it, but that something may be."""
    options = small_options(tmp_path, replicas_elsewhere=True, entry_log_bytes_max=1)
    first, second = await two_logs(tmp_path, options)
    without_headers(first)
    content = first.read_bytes()
    aside = first.with_name(f"{first.name}.unread")
    aside.touch()
    shutil.rmtree(tmp_path / "ledgers" / "index")
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        aside = aside.with_name(f"{aside.name}_")
        assert f"nothing in {aside} can be found any more" in caplog.text
        assert f"{first} can't be read at 0 to {len(content)}" in caplog.text
        for ledger_id in (1, 2):
            with pytest.raises(LedgerFenced):
                await add(bookie, ledger_id, [5])
        with pytest.raises(UnknownLedgerState):
            await port.read(1, 0, entries_max=1, bytes_max=1)
        assert await read_all(port, 2, 0, 4) == packets(2, range(5))
        await bookie.gc.collect(ledgers())
        assert not second.exists()
    assert aside.read_bytes() == content


async def test_one_log_that_fails_stops_no_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = small_options(tmp_path, entry_log_bytes_max=1)
    first, second = await two_logs(tmp_path, options)
    read = LogFile.read

    def bad(self: LogFile, size_bytes: int, offset: int) -> bytes:
        if self.path == first and offset > 8192:
            raise OSError(errno.EIO, "Input/output error", str(first))
        return read(self, size_bytes, offset)

    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        monkeypatch.setattr(LogFile, "read", bad)
        for _ in range(2):
            await bookie.gc.collect(ledgers(1))
        assert first.exists()
        assert not second.exists()
        assert caplog.text.count(f"{first} can't be read, and is kept as it is") == 1
        assert bookie.gc.scrub() == []
        assert f"{first} can't be checked" in caplog.text


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("what", ["entries", "record"])
async def test_an_index_made_anew_says_what_it_could_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, elsewhere: bool, what: str
) -> None:
    """An entry that may have stood there isn't said never to have been, and a fence that may have
    is one: also of ledgers that only the journal knows.
    """
    killed = tmp_path / "killed"
    options = small_options(tmp_path / "a", replicas_elsewhere=elsewhere)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await add(port, 1, range(5))
        await add(port, 2, range(5))
        await port.fence(7, KEY)
        await bookie.checkpointer.checkpoint()
        await add(port, 1, range(5, 10))
        copy_files(tmp_path / "a", killed)
    options = small_options(killed, replicas_elsewhere=elsewhere)
    (path,) = (killed / "ledgers").glob("*.log")
    data = bytearray(path.read_bytes())
    if what == "entries":
        start = data.rindex(data[8192:8196], 0, data.index(b"1:0|"))
        data[start + 9] ^= 1
    else:
        kind, seven = bytes([KIND_LEDGER, 0, 0, 0, 1, 0, 0, 0]), (7).to_bytes(8, "little")
        start = data.index(kind + seven) - 8
        data[start + 48] ^= 1
    path.write_bytes(data)
    shutil.rmtree(killed / "ledgers" / "index")
    async with open_bookie(options) as port:
        assert str(path) in caplog.text
        assert "acknowledged entries may be lost there" in caplog.text
        assert await read_all(port, 2, 0, 4) == packets(2, range(5))
        assert await read_all(port, 1, 5, 9) == packets(1, range(5, 10))
        if what == "entries":
            with pytest.raises(UnknownLedgerState if elsewhere else EntryLost):
                await port.read(1, 0, entries_max=1, bytes_max=1)
        if elsewhere:
            for ledger_id in (1, 7):
                with pytest.raises(LedgerFenced):
                    await add(port, ledger_id, [10])
    assert (killed / "journal" / LIMBO_NAME).exists() == elsewhere
    assert not (killed / "journal" / UNREAD_NAME).exists()


async def test_a_growing_log_is_not_scrubbed(tmp_path: Path) -> None:
    """What a flush has written of a block so far is not damaged."""
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(5))
        await bookie.checkpointer.checkpoint()
        (path,) = (tmp_path / "ledgers").glob("*.log")
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - 4096])
        assert bookie.gc.scrub() == []


async def test_a_log_that_can_be_neither_written_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dying disk ends no bookie: what was added is served, and flushed when it can be."""
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)
    monkeypatch.setattr("geminga_bookie.storage.checkpoint.RETRY_S", 0.01)
    disk = FaultyDisk()
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options, disk=disk) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(5))
        await bookie.checkpointer.checkpoint()
        await add(bookie, 1, range(5, 10))

        def fault(name: str, path: Path) -> int:
            return errno.EIO if name in ("sync", "remove") and path.suffix == ".log" else 0

        disk.fault = fault
        assert bookie.checkpointer.seal()
        await until(lambda: sum(name == "remove" for name, _ in disk.steps) > 5)
        assert len(list((tmp_path / "ledgers").glob("*.log"))) == 2, "not one for each attempt"
        assert await read_all(bookie, 1, 0, 9) == packets(1, range(10))
        disk.heal()
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 9) == packets(1, range(10))

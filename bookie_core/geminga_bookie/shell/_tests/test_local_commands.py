"""The shell's commands on a bookie's files, stopped, damaged or running (BK-11)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest
import trio
from click.testing import CliRunner, Result

from geminga_bookie._tests.support import (
    KEY,
    add,
    copy_files,
    damage_tables,
    packet,
    packets,
    read_all,
    small_options,
    three_directories,
    write_lac,
)
from geminga_bookie.cli import BOOKIE_NAME, bookieshell
from geminga_bookie.errors import LedgerFenced
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.shell.printing import payload_lines
from geminga_bookie.storage.key_value import Batch
from geminga_bookie.storage.location_index import LocationIndex

ENTRIES = 20
HEAD = re.compile(r"--------- Lid=(\S+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+) ---------")
REBUILDS = ["rebuild-db-ledger-locations-index", "rebuild-db-ledgers-index"]


def shell(data_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(bookieshell, ["--data-dir", str(data_dir), *arguments])


async def _build(directory: Path, target: Path) -> None:
    """Of ledgers 1 and 2 half is in an entry log, half in the journal only; 2 is fenced. Ledger 3
    has its key in the journal only."""
    async with open_bookie(small_options(directory)) as port:
        bookie = cast(InProcessBookie, port)
        for ledger_id in (1, 2):
            await add(bookie, ledger_id, range(ENTRIES // 2))
        await bookie.checkpointer.checkpoint()
        for ledger_id in (1, 2):
            await add(bookie, ledger_id, range(ENTRIES // 2, ENTRIES))
        await add(bookie, 3, [0])
        await write_lac(bookie, 1, 7)
        await bookie.fence(2, KEY)
        copy_files(directory, target)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    trio.run(_build, tmp_path / "live", tmp_path / "data" / BOOKIE_NAME)
    return tmp_path / "data"


def journals_of(data_dir: Path) -> list[Path]:
    return sorted((data_dir / BOOKIE_NAME / "journal").glob("*.journal"))


def log_of(data_dir: Path) -> Path:
    (log,) = (data_dir / BOOKIE_NAME / "ledgers").glob("*.log")
    return log


def heads(result: Result) -> list[tuple[int, int, int, int]]:
    return [
        (int(ledger), int(entry), int(offset), int(size))
        for ledger, entry, offset, size in HEAD.findall(result.output)
    ]


def test_readjournal_names_every_entry_and_its_bytes(data_dir: Path) -> None:
    seen: set[tuple[int, int]] = set()
    for journal in journals_of(data_dir):
        result = shell(data_dir, "readjournal", journal.name)
        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"Scan journal {int(journal.stem, 16)} ({journal.name})\n")
        content = journal.read_bytes()
        for ledger_id, entry_id, offset, size in heads(result):
            seen.add((ledger_id, entry_id))
            if entry_id >= 0:
                expected = packets(ledger_id, [entry_id])[0]
                assert content[offset : offset + size] == expected
    both = {(ledger_id, entry) for ledger_id in (1, 2) for entry in range(ENTRIES)}
    facts = {(1, -0x1000), (2, -0x1000), (3, -0x1000), (2, -0x2000), (1, -0x8000)}
    assert seen == both | facts | {(3, 0)}


def test_readjournal_prints_facts_and_payloads(data_dir: Path) -> None:
    number = str(int(journals_of(data_dir)[0].stem, 16))
    lines = shell(data_dir, "readjournal", number).output.splitlines()
    assert lines[1] == "Journal Version : 2"
    at = next(at for at, line in enumerate(lines) if "Lid=1, Eid=-4096," in line)
    assert lines[at + 1 : at + 4] == ["Type:           META", f"MasterKey:      {KEY.hex()}", ""]
    at = next(at for at, line in enumerate(lines) if "Lid=1, Eid=3," in line)
    assert lines[at + 1 : at + 4] == ["Type:           DATA", "LastConfirmed:  2", ""]
    everything = shell(data_dir, "readjournal", number).output
    assert "Type:           META\nFenced\n" in everything
    assert "ExplicitLac:    7" in everything
    dumped = shell(data_dir, "-entryformat", "hex", "readjournal", "-m", number)
    assert "Data:\n\n00000000  " in dumped.output
    named = shell(data_dir, "-ledgeridformat", "uuid", "readjournal", number)
    assert "Lid=00000000-0000-0000-0000-000000000001, Eid=3," in named.output


def test_payloads_do_not_steer_the_terminal() -> None:
    assert list(payload_lines(b"a\x1b[2Jb\xff", "string")) == ["a\\x1b[2Jb\ufffd"]


def test_readjournal_reports_damage(data_dir: Path) -> None:
    journal = journals_of(data_dir)[0]
    content = journal.read_bytes()
    wrong = packet(1, 3, 2)
    assert content.count(wrong) == 1
    journal.write_bytes(content.replace(wrong, wrong[:-1] + b"?"))
    result = shell(data_dir, "readjournal", journal.name)
    assert result.exit_code == 1
    assert "fails its checksum" in result.output


def test_readlog_names_every_entry_and_its_bytes(data_dir: Path) -> None:
    log = log_of(data_dir)
    result = shell(data_dir, "readlog", log.name)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == f"Scan entry log 1 ({log.name})"
    found = heads(result)
    half = range(ENTRIES // 2)
    assert [each[:2] for each in found] == [(ledger, entry) for ledger in (1, 2) for entry in half]
    content = log.read_bytes()
    for ledger_id, entry_id, offset, size in found:
        assert content[offset : offset + size] == packets(ledger_id, [entry_id])[0]


def test_readlog_selects(data_dir: Path) -> None:
    result = shell(data_dir, "readlog", "-l", "2", "-entryid", "4", "1")
    assert [each[:2] for each in heads(result)] == [(2, 4)]
    assert result.output.startswith("Scan entry log 1 (00000001.log) for LedgerId 2  for EntryId 4")
    _, _, offset, size = heads(result)[0]
    for start, end, wanted in (
        (offset, offset, [4]),
        (offset + size - 1, offset + size, [4, 5]),
        (offset + size, offset + size, [5]),
    ):
        result = shell(data_dir, "readlog", "-sp", str(start), "-ep", str(end), "1")
        assert [each[1] for each in heads(result)] == wanted
    result = shell(data_dir, "readlog", "-l", "9", "1")
    assert "LedgerId 9  is not available in the entry log 1 (00000001.log)" in result.output
    result = shell(data_dir, "readlog", "-sp", "99999999", "1")
    assert "doesn't has any entry in the range 99999999 - -1." in result.output


def test_readlog_reports_damage(data_dir: Path) -> None:
    log = log_of(data_dir)
    wrong = packet(1, 3, 2)
    log.write_bytes(log.read_bytes().replace(wrong, wrong[:-1] + b"?"))
    result = shell(data_dir, "readlog", "1")
    assert result.exit_code == 1
    assert result.output.count("Error:          it fails its checksum") == 1
    assert len(heads(result)) == ENTRIES


def test_readlogmetadata(data_dir: Path) -> None:
    result = shell(data_dir, "readlogmetadata", "1")
    lines = result.output.splitlines()
    assert lines[0] == "Print entryLogMetadata of entrylog 1 (00000001.log)"
    sizes = [
        int(size)
        for size in re.findall(r"Lid=\d, TotalSizeOfEntriesOfLedger=(\d+)  -", result.output)
    ]
    assert len(sizes) == 2
    total = sum(sizes)
    assert lines[1] == f"entryLogId: 1, remaining size: {total}, total size: {total}, usage: 1.0"


def test_lastmark_and_files(data_dir: Path) -> None:
    result = shell(data_dir, "lastmark")
    assert re.fullmatch(
        r"LastLogMark : Journal Id - 1\(0000000000000001.journal\), Pos - \d+\n", result.output
    )
    result = shell(data_dir, "listfilesondisc", "-txn", "-log", "-idx")
    lines = result.output.splitlines()
    assert lines[:2] == [
        "--------- Printing the list of Journal Files ---------",
        str(journals_of(data_dir)[0]),
    ]
    assert str(log_of(data_dir)) in lines
    assert any(line.endswith("/index/CURRENT") for line in lines)
    assert shell(data_dir, "listfilesondisc").output == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["readjournal", "zz.txn"], "invalid journal file name zz.txn"),
        (["readjournal", "99"], "no file 0000000000000063.journal in"),
        (["readjournal", "-dir", "/nowhere", "1"], "/nowhere is no journal directory"),
        (["readjournal"], "Missing argument"),
        (["readlog", "zz"], "invalid entry log file name zz"),
        (["readlog", "zz.log"], "invalid entry log file name zz.log"),
        (["readlog", "99"], "no file 00000063.log in"),
        (["readlog", "-l", "x", "1"], "invalid ledger id x"),
        (["readlog", "-sp", "5", "-ep", "3", "1"], "StartPosition of the range"),
        (["readlogmetadata", "99"], "no file 00000063.log in"),
        (["lastmark", "-conf", "/nowhere"], "/nowhere"),
        (["-ledgeridformat", "roman", "lastmark"], "roman"),
    ],
)
def test_wrong_input(data_dir: Path, arguments: list[str], said: str) -> None:
    result = shell(data_dir, *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output


@pytest.mark.parametrize(
    "command", [*REBUILDS, "localconsistencycheck", "lastmark", "check-db-ledgers-index"]
)
def test_no_bookie(tmp_path: Path, command: str) -> None:
    result = shell(tmp_path, command)
    assert result.exit_code == 2
    assert "holds no bookie" in result.output
    assert not any(tmp_path.iterdir())


def test_several_directories_by_a_configuration_file(tmp_path: Path) -> None:
    options = three_directories(tmp_path / "data")

    async def fill() -> None:
        async with open_bookie(options) as bookie:
            for ledger_id in range(3):
                await add(bookie, ledger_id, range(3))

    trio.run(fill)
    config = tmp_path / "bookkeeper.conf"
    config.write_text(
        f"journalDirectories={','.join(map(str, options.journal_dirs))}\n"
        f"ledgerDirectories={','.join(map(str, options.ledger_dirs))}\n"
        f"indexDirectories={','.join(map(str, options.index_dirs))}\n"
    )
    result = shell(tmp_path, "-conf", str(config), "readlog", "1")
    assert result.exit_code == 2
    assert "give the file's whole path" in result.output
    whole = options.ledger_dirs[1] / "00000001.log"
    result = shell(tmp_path, "-conf", str(config), "readlog", str(whole))
    assert [each[:2] for each in heads(result)] == [(1, 0), (1, 1), (1, 2)]
    result = shell(tmp_path, "localconsistencycheck", "-conf", str(config))
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "=== Check passed ===")
    result = shell(tmp_path, "-conf", str(config), "lastmark")
    assert result.output.count("LastLogMark") == len(options.journal_dirs)


async def _check(directory: Path, fenced: bool) -> None:
    async with open_bookie(small_options(directory)) as bookie:
        for ledger_id in (1, 2):
            found = await read_all(bookie, ledger_id, 0, ENTRIES - 1)
            assert found == packets(ledger_id, range(ENTRIES))
        assert await read_all(bookie, 3, 0, 0) == packets(3, [0])
        for ledger_id in (1, 2, 3):
            if fenced or ledger_id == 2:
                with pytest.raises(LedgerFenced):
                    await add(bookie, ledger_id, [ENTRIES])
            else:
                await add(bookie, ledger_id, [ENTRIES])


@pytest.mark.parametrize("command", REBUILDS)
@pytest.mark.parametrize("lost", [False, True])
def test_an_index_is_rebuilt(data_dir: Path, command: str, lost: bool) -> None:
    bookie = data_dir / BOOKIE_NAME
    if lost:
        for file in (bookie / "ledgers" / "index").iterdir():
            file.unlink()
    result = shell(data_dir, command)
    assert result.exit_code == 0, result.output
    assert "-- Done rebuilding DBStorage" in result.output.splitlines()[-1]
    assert shell(data_dir, "localconsistencycheck").exit_code == 0
    trio.run(_check, bookie, command == "rebuild-db-ledgers-index")


@pytest.mark.parametrize("command", REBUILDS)
def test_an_index_with_a_damaged_block_is_rebuilt(data_dir: Path, command: str) -> None:
    """Which RocksDB opens, as it hasn't read it."""
    trio.run(_check_entries, data_dir / BOOKIE_NAME)  # a start writes a table
    damage_tables(data_dir / BOOKIE_NAME / "ledgers" / "index")
    result = shell(data_dir, command)
    assert result.exit_code == 0, result.output
    assert (data_dir / BOOKIE_NAME / "ledgers" / "index.damaged").exists()
    assert shell(data_dir, "localconsistencycheck").exit_code == 0
    trio.run(_check, data_dir / BOOKIE_NAME, command == "rebuild-db-ledgers-index")


def test_a_rebuild_names_the_ledgers(data_dir: Path) -> None:
    result = shell(data_dir, "rebuild-db-ledgers-index", "-v")
    assert re.findall(r"Found ledger (\d+)", result.output) == ["1", "2", "3"]
    result = shell(data_dir, "check-db-ledgers-index", "-v")
    assert result.output.count("isFenced: true") == 3
    assert f"ledger: 1, exists: true, isFenced: true, masterKey: {KEY.hex()}, explicitLAC: 7" in (
        result.output
    )
    assert "Scanned 3 ledgers" in result.output


class Killed(Exception):
    """Stands for kill -9."""


@pytest.mark.parametrize("command", REBUILDS)
@pytest.mark.parametrize("after", [False, True])
def test_a_rebuild_that_is_killed_loses_nothing(
    data_dir: Path, command: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each write of the index."""
    bookie = data_dir / BOOKIE_NAME
    write = LocationIndex._write
    kills = 0
    while True:
        left = kills

        def counted(self: LocationIndex, batch: Batch) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not after:
                raise Killed
            write(self, batch)
            if left < 0:
                raise Killed

        copy = data_dir.with_name(f"copy-{kills}")
        copy_files(bookie, copy / BOOKIE_NAME)
        with monkeypatch.context() as patched:
            patched.setattr(LocationIndex, "_write", counted)
            result = shell(copy, command)
        if result.exit_code == 0:
            break
        assert isinstance(result.exception, Killed)
        trio.run(_check_entries, copy / BOOKIE_NAME)
        kills += 1
    assert kills >= 4


async def _check_entries(directory: Path) -> None:
    async with open_bookie(small_options(directory)) as bookie:
        for ledger_id in (1, 2):
            found = await read_all(bookie, ledger_id, 0, ENTRIES - 1)
            assert found == packets(ledger_id, range(ENTRIES))
        with pytest.raises(LedgerFenced):
            await add(bookie, 2, [ENTRIES])


@pytest.mark.parametrize("command", [*REBUILDS, "localconsistencycheck"])
async def test_refused_beside_a_running_bookie(tmp_path: Path, command: str) -> None:
    async with open_bookie(small_options(tmp_path / BOOKIE_NAME)) as bookie:
        await add(bookie, 1, range(5))
        result = await trio.to_thread.run_sync(shell, tmp_path, command)
        assert result.exit_code == 2
        assert "is in use by another process" in result.output
        await add(bookie, 1, range(5, 10))
        assert await read_all(bookie, 1, 0, 9) == packets(1, range(10))


def test_an_inconsistency_is_reported(data_dir: Path) -> None:
    result = shell(data_dir, "localconsistencycheck")
    assert result.output.splitlines() == [
        "=== Performing local consistency check ===",
        "=== Check passed ===",
    ]
    log = log_of(data_dir)
    wrong = packet(2, 3, 2)
    log.write_bytes(log.read_bytes().replace(wrong, wrong[:-1] + b"?"))
    result = shell(data_dir, "localconsistencycheck")
    assert result.exit_code == 1
    assert "Ledger 2, entry 3: it fails its checksum" in result.output.splitlines()
    log.unlink()
    result = shell(data_dir, "localconsistencycheck")
    assert result.exit_code == 1
    assert f"Ledger 1, entry 0 to {ENTRIES // 2 - 1}: " in result.output

"""`geminga bookieshell` on a data directory as a standalone leaves it (BK-11)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from geminga_bookie._tests.support import Outcomes, copy_files, small_options
from geminga_bookie.cli import BOOKIE_NAME, METADATA_NAME, bookieshell, hex_lines
from geminga_bookie.inprocess import open_bookie
from geminga_protocol.bookkeeper import ledger_metadata, paths
from geminga_protocol.bookkeeper.digest import CRC32C, Digest, master_key
from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from geminga_runtime.metadata.sqlite import SqliteMetadataStore


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("listledgers",), "none.conf can't be read"),
        (("ledgermetadata", "-l", "1"), "none.conf can't be read"),
        (("readledger", "-l", "1"), "none.conf can't be read"),
    ],
)
def test_a_configuration_names_a_cluster(
    data_dir: Path, command: tuple[str, ...], sentence: str
) -> None:
    """It was passed over, and a standalone's file read."""
    front = "--data-dir", str(data_dir), "-conf", str(data_dir / "none.conf")
    done = CliRunner().invoke(bookieshell, [*front, *command])
    assert done.exit_code == 2
    assert sentence in done.output


@pytest.mark.parametrize("command", ["lastmark", "listbookies"])
def test_keys_for_the_server_are_no_news(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    config = tmp_path / "bookkeeper.conf"
    config.write_text(f"ledgerDirectories={tmp_path}\nserverTcpNoDelay=true\nzkServers=h:0\n")
    done = CliRunner().invoke(bookieshell, ["-conf", str(config), command])
    assert done.exit_code == 2
    assert "not used" not in caplog.text + done.output


def metadata(bookie_id: str) -> bytes:
    value = LedgerMetadataFormat(
        quorumSize=1,
        ensembleSize=1,
        ackQuorumSize=1,
        length=0,
        lastEntryId=-1,
        state=LedgerMetadataFormat.OPEN,
        digestType=LedgerMetadataFormat.CRC32C,
        password=b"secret",
    )
    value.segment.add(ensembleMember=[bookie_id], firstEntryId=0)
    value.customMetadata.add(key="application", value=b"pulsar")
    return ledger_metadata.serialise(value)


async def _build(directory: Path) -> None:
    store = await SqliteMetadataStore.open(directory / METADATA_NAME)
    await store.put(paths.ledger(3), metadata("bookie-1:3181"))
    await store.put(paths.ledger(12345678901), metadata("bookie-2:3181"))
    await store.aclose()
    digest = Digest(CRC32C)
    entries = [
        digest.packet(3, entry_id, entry_id - 1, 0, [b"payload %d" % entry_id])
        for entry_id in range(4)
    ]
    options = small_options(directory / BOOKIE_NAME)
    async with open_bookie(options) as bookie:
        outcomes = Outcomes()
        bookie.add(3, master_key(b"secret"), 0, entries[:2], outcomes)
        await outcomes.wait_for(2)
    async with open_bookie(options) as bookie:
        outcomes = Outcomes()
        bookie.add(3, master_key(b"secret"), 2, entries[2:], outcomes)
        await outcomes.wait_for(2)
        copy_files(directory, directory.with_name("data"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Half of the entries are in an entry log, half only in the journal."""
    (tmp_path / "live").mkdir()
    trio.run(_build, tmp_path / "live")
    return tmp_path / "data"


def shell(data_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(bookieshell, ["--data-dir", str(data_dir), *arguments])


def test_listledgers(data_dir: Path) -> None:
    result = shell(data_dir, "listledgers")
    assert result.output.splitlines() == ["ledgerID: 3", "ledgerID: 12345678901"]
    result = shell(data_dir, "listledgers", "-meta", "-bookieid", "bookie-1:3181")
    assert result.output.splitlines()[0] == "ledgerID: 3"
    assert "ensembles={0=[bookie-1:3181]}" in result.output
    assert "12345678901" not in result.output


def test_ledgermetadata(data_dir: Path) -> None:
    result = shell(data_dir, "ledgermetadata", "-ledgerid", "3")
    assert result.exit_code == 0
    assert "state=OPEN" in result.output
    assert "digestType=CRC32C" in result.output
    assert "customMetadata={application=pulsar}" in result.output
    assert "secret" not in result.output


def test_ledgermetadata_of_a_cluster_that_pulsars_command_has_set_up(tmp_path: Path) -> None:
    async def write() -> None:
        store = await SqliteMetadataStore.open(tmp_path / METADATA_NAME)
        layout = b"1\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
        await store.put(paths.LAYOUT, layout)
        await store.put(paths.ledger(10, paths.Layout.HYBRID), metadata("bookie-1:3181"))
        await store.aclose()

    trio.run(write)
    result = shell(tmp_path, "ledgermetadata", "-ledgerid", "10")
    assert result.exit_code == 0, result.output
    assert "ensembles={0=[bookie-1:3181]}" in result.output


def test_readledger(data_dir: Path) -> None:
    result = shell(data_dir, "readledger", "-l", "3", "-msg")
    assert result.exit_code == 0
    heads = [line for line in result.output.splitlines() if line.startswith("---")]
    assert heads == [f"--------- Lid=3, Eid={entry_id} ---------" for entry_id in range(4)]
    assert "|payload 3|" in result.output
    result = shell(data_dir, "readledger", "-ledgerid", "3", "-fe", "1", "-le", "2")
    assert result.output.count("Lid=3") == 2


def test_readledger_reports_damage(data_dir: Path) -> None:
    (log,) = (data_dir / BOOKIE_NAME / "ledgers").glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"payload 1", b"payload X"))
    result = shell(data_dir, "readledger", "-l", "3")
    assert result.exit_code == 1
    assert result.output.count("Error:") == 1
    assert result.output.count("Type:           DATA") == 3


@pytest.mark.parametrize("arguments", [["ledgermetadata", "-l", "9"], ["readledger", "-l", "9"]])
def test_unknown_ledgers(data_dir: Path, arguments: list[str]) -> None:
    result = shell(data_dir, *arguments)
    assert result.exit_code == 2
    assert "no ledger 9" in result.output


def test_no_data_directory(tmp_path: Path) -> None:
    result = shell(tmp_path / "none", "listledgers")
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")


def test_hex_lines() -> None:
    (line,) = hex_lines(b"Az\x00")
    assert line.startswith("00000000  41 7a 00 ")
    assert line.endswith("|Az.|")

"""Starting: quick, alone on its data, and with one clear sentence where that cannot be."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import trio

from compat_tests.faults.conftest import TOPIC, Starter
from compat_tests.processes import standalone_command
from compat_tests.wire.raw import RawClient, read_all
from geminga_runtime.metadata.sqlite import SqliteMetadataStore


def refused(command: list[str], code: int = 2) -> str:
    """Run a server that must not start; what it said, one sentence on stderr."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, f"code {done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr
    # For a wrong argument the command line's usage goes before the sentence.
    lines = [
        line
        for line in done.stderr.splitlines()
        if line and not line.startswith(("Usage:", "Try "))
    ]
    assert len(lines) == 1, f"one sentence is enough:\n{done.stderr}"
    return lines[0]


def accepted(data_dir: Path) -> list[str]:
    """The sentences of `--accept-metadata-loss`; each is said once."""
    command = standalone_command(data_dir, options=["--accept-metadata-loss"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = done.stdout.splitlines()
    assert said
    assert not [line for line in said if line in done.stderr], done.stderr
    return said


@pytest.mark.alone
def test_starts_quickly_and_small_and_stops_quickly(start: Starter) -> None:
    server = start()
    # The tests share the machine: the bench measures what the promise of one second is worth.
    assert server.cpu_s() < 4
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.publish(0, b"kept")
        assert server.rss_bytes() < 120e6
        began = time.monotonic()
        assert server.stop() == 0, server.log_tail()
        # Nothing is waited for: what is open is given twice as long.
        assert time.monotonic() - began < 30
    assert "Traceback" not in server.log_path.read_text()
    assert [body for _, body in read_all(start().address, TOPIC)] == [b"kept"]


def test_an_administrator_ends_it(start: Starter) -> None:
    server = start()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.publish(0, b"kept")
        ask = urllib.request.Request(f"{server.web_url}/admin/v2/brokers/shutdown", method="POST")
        with urllib.request.urlopen(ask, timeout=60) as answer:
            assert answer.status == 204
        assert server.process.wait(60) == 0, server.log_tail()
    log = server.log_path.read_text()
    assert "stopping: an administrator says so" in log
    assert "Traceback" not in log
    assert [body for _, body in read_all(start().address, TOPIC)] == [b"kept"]


def test_in_memory_leaves_nothing(data_dir: Path, start: Starter) -> None:
    server = start(options=["--in-memory"])
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.publish(0, b"gone with the process")
    server.stop()
    assert not data_dir.exists() or not list(data_dir.rglob("*"))


def test_a_bookie_without_its_metadata_is_refused(data_dir: Path, start: Starter) -> None:
    """An empty metadata store would say that every ledger is garbage."""
    server = start()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.publish(0, b"kept")
    server.stop()
    for path in data_dir.glob("metadata.sqlite*"):
        path.unlink()
    said = refused(standalone_command(data_dir))
    assert "metadata.sqlite is gone, while the bookie's data are there" in said
    assert not list(data_dir.glob("metadata.sqlite")), "a refused start makes none"


def test_metadata_of_before_are_refused(data_dir: Path, start: Starter) -> None:
    """With a log that was cut, and one from before the topic was made; until that is accepted."""
    server = start()
    log, index = data_dir / "metadata.sqlite-wal", data_dir / "metadata.sqlite-shm"
    before = log.read_bytes()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        first = client.publish(0, b"of a topic that the metadata of before don't know")
    server.kill()
    whole, counted = log.read_bytes(), index.read_bytes()
    log.write_bytes(before)
    said = refused(standalone_command(data_dir))
    assert "metadata.sqlite-wal has " in said
    assert "--accept-metadata-loss" in said
    log.write_bytes(whole)
    index.write_bytes(counted)
    server = start()
    server.kill()
    log.write_bytes(before)
    index.unlink()
    for brokers in ("1", "2"):
        said = refused(standalone_command(data_dir, options=["--brokers", brokers]))
        assert f"have ledger {first[0]}, " in said
    (said,) = accepted(data_dir)
    assert f" to {first[0]} are unknown to the metadata" in said
    server = start()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        assert client.publish(0, b"in a ledger of its own")[0] > first[0]
    server.stop()


async def _fill(data_dir: Path) -> None:
    store = await SqliteMetadataStore.open(data_dir / "metadata.sqlite")
    for number in range(3000):  # the log begins anew
        await store.put(f"/n/{number:04}", b"%04d" % number * 50)
    await store.aclose()


def test_damaged_metadata_are_refused(data_dir: Path, start: Starter) -> None:
    """Until what can be saved is accepted: here all but a few nodes that the test has made."""
    server = start()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.publish(0, b"kept")
    server.stop()
    trio.run(_fill, data_dir)
    file = data_dir / "metadata.sqlite"
    data = bytearray(file.read_bytes())
    data[data.index(b"1234" * 50) + 7] ^= 0x10
    file.write_bytes(data)
    for brokers in ("1", "2"):
        said = refused(standalone_command(data_dir, options=["--brokers", brokers]))
        assert f"{file.resolve()} was changed by something else: 1 of its " in said
        assert "--accept-metadata-loss" in said
    assert file.read_bytes() == data
    assert accepted(data_dir)[-1].endswith("metadata.sqlite.damaged-1")
    assert (data_dir / "metadata.sqlite.damaged-1").read_bytes() == data
    assert [body for _, body in read_all(start().address, TOPIC)] == [b"kept"]


def test_port_taken(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options in ({"broker_port": port}, {"web_port": port}):
            assert str(port) in refused(standalone_command(data_dir, **options), 1)


def test_data_directory_in_use(data_dir: Path, start: Starter) -> None:
    start()
    assert str(data_dir) in refused(standalone_command(data_dir), 1)


def test_data_directory_not_writable() -> None:
    folder = Path("/proc/geminga-data")  # not writable for root either
    assert str(folder) in refused(standalone_command(folder))


def test_data_directory_is_a_file(data_dir: Path) -> None:
    data_dir.write_text("not a folder")
    assert str(data_dir) in refused(standalone_command(data_dir))


def test_data_of_another_version(data_dir: Path, start: Starter) -> None:
    start().stop()
    databases = [
        path
        for path in data_dir.rglob("*")
        if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3"
    ]
    assert databases
    with sqlite3.connect(databases[0]) as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    assert "999" in refused(standalone_command(data_dir))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerDeleteInactiveTopicsEnabled", "perhaps"),
        ("maxMessageSize", "many"),
        ("managedLedgerMaxEntriesPerLedger", "-5"),
    ],
)
def test_wrong_value_in_the_configuration(data_dir: Path, key: str, value: str) -> None:
    sentence = refused(standalone_command(data_dir, settings={key: value}))
    assert key in sentence


def test_configuration_file_missing(data_dir: Path) -> None:
    missing = str(data_dir.with_suffix(".nowhere"))
    assert missing in refused(standalone_command(data_dir, options=["--config", missing]))


def test_wrong_option(data_dir: Path) -> None:
    done = subprocess.run(
        standalone_command(data_dir, options=["--no-such-option"]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


def test_unknown_keys_are_warned_about_once_together(data_dir: Path, start: Starter) -> None:
    known = {"clusterName": "standalone"}
    server = start(settings={"someKeyOfApaches": "1", "anotherKeyOfApaches": "2", **known})
    log = server.log_path.read_text().splitlines()
    lines = [line for line in log if "someKeyOfApaches" in line or "anotherKeyOfApaches" in line]
    assert len(lines) == 1
    assert "someKeyOfApaches" in lines[0]
    assert "anotherKeyOfApaches" in lines[0]

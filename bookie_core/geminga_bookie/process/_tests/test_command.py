"""`geminga bookie` refuses with one sentence and exit code 2."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from geminga_bookie.process.command import bookie


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "Error: metadataServiceUri: must be set, e.g. to zk+hierarchical://HOST:2181/ledgers"),
        (["--metadata-store", "zk:h:x"], "Error: metadataServiceUri: "),
        (["--metadata-store", "zk://h/x"], "Error: metadataServiceUri: "),
        (["--config", "/no/file"], "Error: configuration file /no/file can't be read: "),
    ],
)
def test_what_it_refuses(options: list[str], line: str, tmp_path: Path) -> None:
    where = ["--data", str(tmp_path / "data"), "--advertised-address", "127.0.0.1"]
    done = CliRunner().invoke(bookie, [*where, *options])
    assert done.exit_code == 2
    assert done.output.strip().splitlines()[-1].startswith(line)
    assert not (tmp_path / "data").exists()


def test_the_store_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose own name is a loopback address, as Debian makes it."""
    monkeypatch.setattr(socket, "gethostbyname", lambda _name: "127.0.1.1")
    done = CliRunner().invoke(bookie, ["--data", str(tmp_path / "data")])
    assert done.exit_code == 2
    assert "Error: metadataServiceUri: must be set" in done.output


@pytest.mark.slow
def test_a_store_that_is_away_may_come_back(tmp_path: Path) -> None:
    """Exit code 1: the unit for systemd starts it again."""
    config = tmp_path / "bookie.conf"
    config.write_text("zkTimeout=300\n")
    where = ["--data", str(tmp_path / "data"), "--advertised-address", "127.0.0.1"]
    command = [sys.executable, "-m", "geminga.cli", "bookie", *where, "--config", str(config)]
    command += ["--metadata-store", "zk:127.0.0.1:1", "--log-level", "ERROR"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "metadata store 'zk:127.0.0.1:1'" in done.stderr.strip().splitlines()[-1]

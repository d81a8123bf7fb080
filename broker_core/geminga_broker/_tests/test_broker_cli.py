"""`geminga broker`: what it refuses, in one sentence that names the key or the option."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from geminga_broker.broker import warn_of_too_few
from geminga_broker.cli import broker

NOBODY = "zk:127.0.0.1:1"
ANY_PORT = ("--broker-port", "0", "--web-port", "0")


def refused(*arguments: str) -> str:
    """The one line on standard error."""
    done = CliRunner().invoke(broker, [*ANY_PORT, *arguments])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("", "metadataStoreUrl: a broker needs zk:"),
        ("metadataStoreUrl=rocksdb:///data", "metadataStoreUrl: .*'rocksdb:///data'"),
        ("metadataStoreUrl=zk://h:2181/c", "metadataStoreUrl: .* write 'zk:h:2181/c'"),
        ("metadataStoreUrl=zk:", "metadataStoreUrl: metadata store 'zk:'"),
        (f"metadataStoreUrl={NOBODY}\nconfigurationMetadataStoreUrl=etcd:h",
         "configurationMetadataStoreUrl: .*'etcd:h'"),
        (f"metadataStoreUrl={NOBODY}\nbookkeeperMetadataServiceUri=zk+flat://h/ledgers",
         "bookkeeperMetadataServiceUri: 'zk\\+flat://h/ledgers'"),
        (f"metadataStoreUrl={NOBODY}\nmetadataStoreSessionTimeoutMillis=0",
         "metadataStoreSessionTimeoutMillis"),
    ],
)  # fmt: skip
def test_wrong_settings(tmp_path: Path, settings: str, named: str) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(settings)
    line = refused("--config", str(config))
    assert re.search(named, line), line


@pytest.mark.slow
def test_a_store_that_is_away_is_named(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("metadataStoreSessionTimeoutMillis=300\n")
    command = [
        *(sys.executable, "-m", "geminga.cli", "broker", *ANY_PORT),
        *("--metadata-store", NOBODY, "--config", str(config), "--log-level", "ERROR"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert f"metadataStoreUrl {NOBODY}" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_fewer_bookies_than_a_ledger_needs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_too_few(("one:3181", "two:3181"), 2)
        assert not caplog.records
        warn_of_too_few(("one:3181", "two:3181"), 3)
        warn_of_too_few((), 1)
    few, none = [record.getMessage() for record in caplog.records]
    assert "managedLedgerDefaultEnsembleSize is 3" in few
    assert "only 2 take new entries (one:3181, two:3181)" in few
    assert "only 0 take new entries (none)" in none

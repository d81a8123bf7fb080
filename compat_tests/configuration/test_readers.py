"""What servers do with Apache's keys: its defaults start without a word, other values are told, and
the dangerous ones refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from compat_tests.configuration import state
from compat_tests.configuration.state import BOOKIE, BROKER, CLIENT, PROXY
from geminga.cli._client_conf import ClientFile
from geminga_bookie.autorecovery.command import autorecovery
from geminga_bookie.autorecovery.config import load_config as load_autorecovery
from geminga_bookie.process.command import bookie
from geminga_bookie.process.config import load_config as load_bookie
from geminga_broker.authz.settings import check_settings
from geminga_broker.cli import broker, standalone
from geminga_broker.config import load_cluster_config, load_config
from geminga_proxy.cli import proxy
from geminga_proxy.config import load_config as load_proxy
from geminga_runtime.auth.own import OwnCredentials
from geminga_runtime.settings import ConfigError, build, gather

LOADS: dict[str, tuple[tuple[str, ...], Callable[[Path], object]]] = {
    "broker": ((BROKER,), lambda path: load_cluster_config(path, {})),
    "standalone": ((BOOKIE, BROKER), lambda path: load_config(path, {})),
    "bookie": ((BOOKIE,), lambda path: load_bookie(path, {})),
    "autorecovery": ((BOOKIE,), lambda path: load_autorecovery(path, {})),
    "proxy": ((PROXY,), lambda path: load_proxy(path, {}, {"brokerServiceURL": "pulsar://a:1"})),
    "client": ((CLIENT,), lambda path: build(ClientFile, gather(path, {}, {}), "client")),
}
"""The files that a command may be given, and how it reads one."""

COMMANDS: dict[str, click.Command] = {
    each.name or "": each for each in (autorecovery, bookie, broker, proxy, standalone)
}


def write(folder: Path, values: dict[str, str]) -> Path:
    path = folder / "apache.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("reader", LOADS)
def test_apache_s_defaults_are_taken_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    files, load = LOADS[reader]
    defaults: dict[str, str] = {}
    for file in files:
        defaults |= {key: one.default for key, one in state.apache(file).items()}
    load(write(tmp_path, defaults))
    assert told(caplog) == []


@pytest.mark.parametrize("reader", LOADS)
def test_values_of_apache_s_files_are_taken_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    files, load = LOADS[reader]
    for file in files:
        for key, values in state.stock(file).items():
            for value in values:
                load(write(tmp_path, {key: value}))
    assert told(caplog) == []


@pytest.mark.parametrize("reader", LOADS)
def test_other_values_are_told_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    (known,) = (each.known for each in state.readers() if each.name == reader)
    _, load = LOADS[reader]
    expected = {}
    for key, one in known.items():
        if one.refused:
            with pytest.raises(ConfigError, match=f"^{key} in .*'other' is not supported: "):
                load(write(tmp_path, {key: "other"}))
        elif not (key.endswith("*") or "*" in one.defaults or one.alone):
            expected[key] = one.reason
    load(write(tmp_path, dict.fromkeys(expected, "other") | {"noSuchKeyAnywhere": "1"}))
    first, second = told(caplog)
    assert first.startswith("Apache's configuration keys that have no effect here: ")
    assert {f"{key} ({reason})" for key, reason in expected.items()} == set(_listed(first))
    assert second == "configuration keys that are not used: noSuchKeyAnywhere"


def _listed(message: str) -> Iterator[str]:
    rest = message.partition(": ")[2]
    return (f"{each.removesuffix(')')})" for each in rest.split("), "))


def test_transactions_have_a_sentence_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, {"transactionCoordinatorEnabled": "true", "numIOThreads": "77"})
    for reader in ("broker", "standalone"):
        caplog.clear()
        LOADS[reader][1](path)
        first, second = told(caplog)
        assert first == (
            f"transactionCoordinatorEnabled=true in {path} has no effect: there are no "
            "transactions yet: a client that begins one gets an error"
        )
        assert "transaction" not in second


def test_keys_with_the_beginning_of_a_client_s_options(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_cluster_config(write(tmp_path, {"bookkeeper_throttle": "5", "brokerClient_x": "y"}), {})
    (message,) = told(caplog)
    assert message == (
        "Apache's configuration keys that have no effect here: bookkeeper_throttle (bookie client "
        "of Java), brokerClient_x (client of Java)"
    )


def test_another_way_of_authorization_is_refused(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, {"authorizationProvider": "org.Mine"}), {})
    with pytest.raises(ConfigError, match=r"^authorizationProvider: only "):
        check_settings(config.authorization, authenticates=True)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("bookie", "zkEnableSecurity"),
        ("autorecovery", "zkEnableSecurity"),
        ("broker", "brokerInterceptors"),
        ("standalone", "tlsEnabledWithKeyStore"),
        ("proxy", "sslFactoryPlugin"),
    ],
)
def test_a_refusal_is_one_sentence_and_code_2(tmp_path: Path, command: str, key: str) -> None:
    path = write(tmp_path, {key: "x.Y"})
    done = CliRunner().invoke(COMMANDS[command], ["--config", str(path)])
    assert done.exit_code == 2
    assert f"{key} in {path}: 'x.Y' is not supported: " in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_a_default_may_be_written_in_another_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {
        "managedLedgerCacheEvictionWatermark": "0.90",
        "transactionCoordinatorEnabled": "FALSE",
        "numIOThreads": "",
        "messagingProtocols": "null",
    }
    load_config(write(tmp_path, values), {})
    assert told(caplog) == []
    load_config(write(tmp_path, values | {"managedLedgerCacheEvictionWatermark": "0.91"}), {})
    (message,) = told(caplog)
    assert message.endswith(": managedLedgerCacheEvictionWatermark (no such cache here)")


def test_the_broker_s_own_credentials_may_be_disabled_by_apache_s_default(tmp_path: Path) -> None:
    key = "brokerClientAuthenticationPlugin"
    default = state.apache(BROKER)[key].default
    assert default.endswith(".AuthenticationDisabled")
    config = load_config(write(tmp_path, {key: default}), {})
    assert config.peers.credentials() == OwnCredentials()

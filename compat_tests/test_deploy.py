"""The units and the compose file: their commands are those that there are, their settings are used,
and both start the same things.
"""

from __future__ import annotations

import configparser
import logging
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from compat_tests.processes import ROOT
from geminga_broker.config import load_cluster_config
from geminga_runtime.command_line import StartFailed, StartFailedForNow

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())[
    "services"
]
OURS = {name: each for name, each in SERVICES.items() if "build" in each}


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options that a command line of ours sets. Raises ClickException."""
    (found,) = entry_points(group="geminga.commands", name=arguments[0])
    command: click.Command = found.load()
    return command.make_context(arguments[0], arguments[1:]).params


def copies_of_the_guide() -> dict[str, str]:
    """What CLUSTER.md's broker.conf says of copies, and of a bookie that is silent."""
    keys = r"^((?:managedLedgerDefault|bookkeeperClient)\w+)=(\d+)$"
    found = dict(re.findall(keys, (ROOT / "docs" / "CLUSTER.md").read_text(), re.MULTILINE))
    assert len(found) == 4, found
    return found


def test_copies_are_those_of_the_guide() -> None:
    """Compose and Kubernetes have three bookies as it has, of which one may be lost."""
    (brokers,) = (
        each["data"]
        for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "settings.yaml").read_text())
        if each["metadata"]["name"] == "brokers"
    )
    told = {f"PULSAR_PREFIX_{key}": value for key, value in copies_of_the_guide().items()}
    for settings in (OURS["broker"]["environment"], brokers):
        assert told.items() <= settings.items()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_there_is(unit: Path) -> None:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.read(unit)
    program, *arguments = shlex.split(read["Service"]["execstart"])
    assert program == "geminga"
    assert unit.name == f"geminga-{arguments[0]}.service"
    config = str(parsed(arguments)["config_file"])
    assert config == f"/etc/geminga/{arguments[0]}.conf"
    assert config in (ROOT / "docs" / "CLUSTER.md").read_text()
    assert read["Service"]["restart"] == "on-failure"
    assert read["Service"]["restartpreventexitstatus"] == str(StartFailed.exit_code)
    assert read["Unit"]["startlimitintervalsec"] == "0", "else it is given up after five starts"
    assert StartFailedForNow.exit_code != StartFailed.exit_code


def test_the_compose_file_is_the_cluster_of_the_document() -> None:
    assert [name for name in SERVICES if name not in OURS] == ["zookeeper"]
    lines = [shlex.split(each["command"]) for each in OURS.values()]
    assert [line[0] for line in lines] == [
        "initialize-cluster-metadata", "bookie", "bookie", "bookie", "broker",
    ]  # fmt: skip
    params = [parsed(line) for line in lines]
    keys = "local_url", "configuration_url", "service_uri", "metadata_store"
    stores = {each[key] for each in params for key in keys if key in each}
    assert stores == {"zk:zookeeper:2181"}
    names = [name for name in OURS if name.startswith("bookie")]
    assert [each["advertised_address"] for each in params[1:4]] == names


def test_the_compose_files_settings_are_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log = load_cluster_config(None, OURS["broker"]["environment"]).log
    assert not caplog.records
    assert (log.ensemble_size, log.write_quorum, log.ack_quorum) == (2, 2, 2)

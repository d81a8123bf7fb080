"""The commands over a fake broker on a real port: flags, output, exit codes."""

from __future__ import annotations

import click
import pytest
import trio
from click.testing import CliRunner

import geminga
from geminga.cli._run import run
from geminga.cli._show import describe
from geminga.cli.client import client
from geminga.cli.perf import perf


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["produce", "t", "-n", "2"], "-m"),
        (["produce", "t", "-m", "x", "-p", "novalue"], "key=value"),
        (["produce", "t", "-m", "x", "-n", "0"], "-n"),
        (["produce", "t", "-m", "x", "-ekn", "k"], "-ekn and -ekv"),
        (["produce", "t", "-m", "x", "-ekv", "file:///k.pem"], "-ekn and -ekv"),
        (["consume", "t"], "--subscription-name"),
        (["--auth-params", "token:a", "produce", "t", "-m", "x"], "without --auth-plugin"),
        (["consume", "t", "-s", "s", "-t", "Odd"], "Odd"),
        (["read", "t", "-m", "5"], "'5' is not latest, earliest or LEDGER:ENTRY"),
        (["read", "t", "-m", "5:x"], "'5:x' is not latest"),
        (["read", "t", "-m", "5:6:7:8:9"], "'5:6:7:8:9' is not latest"),
        (["read", "t", "-m", "9999999999999999999:0"], "that no message id has"),
        (["read", "t", "-n", "-1"], "--num-messages"),
        (["produce", "-ks", "string", "-m", "a", "t"], "produce has no -ks (--key-schema): -k"),
        (["produce", "--key-value-key", "k", "-m", "a", "t"], "produce has no -kvk"),
        (["consume", "-rs", "-s", "s", "t"], "consume has no -rs (--replicated): leave it out"),
        (["read", "-mp", "t"], "read has no -mp (--print-metadata): --json shows the metadata"),
    ],
)
def test_bad_usage_is_one_sentence_and_two(command: list[str], named: str) -> None:
    result = CliRunner().invoke(client, command)
    assert result.exit_code == 2
    assert named in result.output


@pytest.mark.parametrize(
    ("group", "command", "sentence"),
    [
        (client, ["--url", "ftp://x", "produce", "t", "-m", "x"], "service_url must begin with"),
        (client, ["produce", "a//b", "-m", "x"], "topic: 'a//b' is neither"),
        (perf, ["produce", "t", "-u", "ftp://x"], "service_url must begin with"),
        (perf, ["consume", "t", "-u", "ftp://x"], "service_url must begin with"),
        (perf, ["consume", "a//b"], "topic: 'a//b' is neither"),
    ],
)
def test_what_only_the_client_finds_wrong(
    group: click.Group, command: list[str], sentence: str
) -> None:
    result = CliRunner().invoke(group, command)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith(f"Error: {sentence}")


@pytest.mark.parametrize("name", ["-u", "--url", "--service-url"])
def test_each_command_takes_each_name_of_the_url(name: str) -> None:
    for group, command in (
        (client, [name, "ftp://x", "produce", "t", "-m", "x"]),
        (perf, ["produce", "t", name, "ftp://x"]),
        (perf, ["consume", "t", name, "ftp://x"]),
    ):
        assert "service_url must begin with" in CliRunner().invoke(group, command).output


def test_a_rate_below_zero_is_refused() -> None:
    # A port without a server: the old command tried to connect.
    result = CliRunner().invoke(
        perf, ["produce", "t", "-u", "pulsar://127.0.0.1:1", "-r", "-1", "-time", "1"]
    )
    assert result.exit_code == 2
    assert "--rate" in result.output


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["produce", "t", "-z", "gzip"], "--compression"),
        (["produce", "t", "-m", "-1"], "--num-messages"),
        (["produce", "t", "-b", "-1"], "--batch-time-window"),
        (["produce", "t", "-time", "-1"], "--test-duration"),
        (["produce", "t", "--warmup-time", "-1"], "--warmup-time"),
        (["consume", "t", "-r", "-1"], "--rate"),
        (["consume", "t", "-m", "-1"], "--num-messages"),
        (["consume", "t", "-time", "-1"], "--test-duration"),
        (["read", "t", "-m", "5"], "--start-message-id"),
        (["read", "t", "-r", "-1"], "--rate"),
    ],
)
def test_bad_options_of_perf_are_refused(command: list[str], named: str) -> None:
    result = CliRunner().invoke(perf, [*command, "-u", "pulsar://127.0.0.1:1"])
    assert result.exit_code == 2
    assert f"'{named}'" in result.output


def test_what_goes_wrong_is_one_sentence_and_one() -> None:
    @click.command
    def failing() -> None:
        async def main() -> None:
            async with trio.open_nursery():
                raise geminga.ConsumerBusyError("t: the subscription has a consumer")

        run(main)

    result = CliRunner().invoke(failing)
    assert (result.exit_code, result.output) == (1, "Error: t: the subscription has a consumer\n")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (client, ["consume", "1;", "1000;"]),
        (client, ["produce", "1;", "0.0;"]),
        (client, ["read", "latest]", "1000;"]),
        (perf, ["read", "earliest]", "1000;"]),
        (perf, ["consume", "sub]", "1000;", "Exclusive]"]),
        (perf, ["produce", "100.0;", "50000;", "NONE]"]),
    ],
)
def test_help_tells_defaults(command: click.Group, shown: list[str]) -> None:
    name, *defaults = shown
    output = " ".join(CliRunner().invoke(command, [name, "--help"]).output.split())
    for each in defaults:
        assert f"[default: {each}" in output


def test_pulsars_long_flags_with_one_dash() -> None:
    for group, command in ((perf, ["produce", "--help"]), (perf, ["consume", "--help"])):
        output = CliRunner().invoke(group, command).output
        assert "-time" in output
        assert "-m" in output


def test_a_message_in_one_line() -> None:
    class Fake:
        data = value = b"h\xc3\xa4"
        partition_key = None
        properties = {"a": "1", "b": "2"}
        publish_time_ms = 5
        event_time_ms = None

    assert describe(Fake(), in_hex=False) == (
        "publishTime:[5], eventTime:[0], key:[null], properties:[a=1, b=2], content:hä"
    )
    assert describe(Fake(), in_hex=True).endswith("content:68 C3 A4")

"""What commands tell of credentials, and of the file that has them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import geminga
import geminga.testing
from geminga.cli import main
from geminga.cli._run import run

NOBODY = "pulsar://127.0.0.1:1"
WANTED = "no credentials were given: give --auth-plugin and --auth-params"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a server that wants a token."""
    key = base64.b64encode(bytes(32)).decode()
    settings = {
        "authenticationEnabled": True,
        "authenticationProviders": "token",
        "tokenSecretKey": f"data:;base64,{key}",
    }
    with geminga.testing.broker(settings) as found:
        yield found


def output(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments, prog_name="geminga")
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "line", ["client -u {} produce t -m x", "perf produce t -u {} -m 1", "perf read t -u {}"]
)
def test_a_server_that_wants_credentials(url: str, line: str) -> None:
    code, told = output(*line.format(url).split())
    assert (code, WANTED in told) == (1, True), told


def test_a_token_that_can_be_read_once(url: str) -> None:
    """As a shell's `file:<(command)`."""
    read, write = os.pipe()
    os.write(write, b"a.b.c")
    os.close(write)
    given = f"-u {url} --auth-plugin token --auth-params file:/dev/fd/{read}"
    code, told = output(*f"client {given} produce t -m x".split())
    os.close(read)
    assert (code, "Failed to authenticate" in told) == (1, True), told


def test_doctor_tells_of_its_options_once(url: geminga.testing.BrokerUrl) -> None:
    _, told = output("doctor", "--admin-url", url.web_url, "-u", url)
    assert "no credentials were given." in told
    assert "option authentication" not in told


def test_a_command_without_these_options_names_none() -> None:
    """Its users would look for them in vain."""

    @click.command
    def failing() -> None:
        async def asking() -> None:
            raise geminga.AuthenticationError("no: see the client's option authentication")

        run(asking)

    assert "see the client's option" in CliRunner().invoke(failing).output


@pytest.mark.parametrize(
    "line",
    ["client -u {} {} produce t -m x", "perf produce t -u {} {}", "doctor -u {} {}",
     "admin {1} tenants list", "compact-topic -t t {1}"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("params", "told"),
    [
        ("file:/no/token", "the token's file /no/token can't be read: No such file or directory"),
        ("file:///no/token", "the token's file /no/token can't be read: No such file"),
        ("env:NO_SUCH", "the token can't be read: no variable NO_SUCH; see --auth-params"),
    ],
)
def test_a_token_that_can_t_be_read_is_wrong_use(line: str, params: str, told: str) -> None:
    given = f"--auth-plugin token --auth-params {params}"
    code, text = output(*line.format(NOBODY, given).split())
    assert (code, told in text) == (2, True), text
    assert "[Errno" not in text


@pytest.mark.parametrize(
    "line",
    ["admin -c {} --admin-url http://127.0.0.1:1 tenants list", "perf read t -cf {} -u ftp://x"],
)
def test_the_file_with_an_unknown_key_is_named(tmp_path: Path, line: str) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("noSuch=1\n")
    command = [sys.executable, "-m", "geminga.cli", *line.format(conf).split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = f"WARNING {conf}: configuration keys that are not used: noSuch"
    assert done.stderr.splitlines()[0] == told

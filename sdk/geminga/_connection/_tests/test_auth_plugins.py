"""Authentication by the configuration of Apache's clients, and the commands that use it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from geminga.auth import (
    Authentication,
    AuthenticationBasic,
    AuthenticationOAuth2,
    AuthenticationTls,
    AuthenticationToken,
    from_config,
)
from geminga.cli._access import URL_DEFAULT, Access, access_options
from geminga.cli.client import client
from geminga.cli.perf import perf
from geminga.errors import InvalidArgumentError

JAVA = "org.apache.pulsar.client.impl.auth."
OAUTH2 = {"type": "client_credentials", "issuerUrl": "https://x", "privateKey": "file:///k.json"}


@pytest.mark.parametrize("name", [JAVA + "AuthenticationToken", "AuthenticationToken", "token"])
@pytest.mark.parametrize(
    "params", ["token:abc", "abc", '{"token": "abc"}', " token:abc ", "FILE", "env:GEMINGA_T"]
)
async def test_tokens(
    name: str, params: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINGA_T", "abc")
    (tmp_path / "token").write_text("abc\n")
    made = from_config(name, f"file://{tmp_path}/token" if params == "FILE" else params)
    assert isinstance(made, AuthenticationToken)
    assert await made.data() == b"abc"


@pytest.mark.parametrize("user", ["userId", "username"])
async def test_passwords(user: str) -> None:
    params = json.dumps({user: "ann", "password": "s3:cret"})
    made = from_config(JAVA + "AuthenticationBasic", params)
    assert isinstance(made, AuthenticationBasic)
    assert await made.data() == b"ann:s3:cret"


@pytest.mark.parametrize(
    "params", ["tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
               '{"tlsCertFile": "/c.pem", "tlsKeyFile": "/k.pem"}'],
)  # fmt: skip
def test_certificates(params: str) -> None:
    made = from_config(JAVA + "AuthenticationTls", params)
    assert isinstance(made, AuthenticationTls)
    assert made.tls_certificate == ("/c.pem", "/k.pem")


def test_oauth2() -> None:
    made = from_config(JAVA + "oauth2.AuthenticationOAuth2", json.dumps(OAUTH2 | {"scope": "s"}))
    assert isinstance(made, AuthenticationOAuth2)


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [
        ("kerberos", "", "'kerberos' is none of token, basic, tls, oauth2"),
        ("", "", "'' is none of"),
        ("token", "", "token"),
        ("token", '{"tok": "s3cret"}', "token is missing"),
        ("token", '{"token": 5}', "JSON object of texts"),
        ("basic", "ann:s3cret", "JSON object of texts"),
        ("basic", '{"userId": "s3cret"}', "password is missing"),
        ("basic", "[]", "JSON object of texts"),
        ("tls", "s3cret", "key:value"),
        ("tls", "tlsCertFile:s3cret", "tlsKeyFile is missing"),
        ("oauth2", json.dumps(OAUTH2 | {"type": "password"}), "client_credentials"),
        ("oauth2", '{"issuerUrl": "https://x", "client_secret": "s3cret"}', "privateKey"),
    ],
)
def test_what_is_wrong_is_told_without_the_secret(name: str, params: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_config(name, params)
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)


def parsed(tmp_path: Path, options: list[str], conf: str = "") -> Access:
    found: list[Access] = []

    @click.command()
    @access_options
    def command(access: Access) -> None:
        found.append(access)

    file = tmp_path / "client.conf"
    file.write_text(conf)
    result = CliRunner().invoke(command, [*options, "-cf", str(file)])
    assert result.exit_code == 0, result.output
    return found[0]


def test_options_win_over_the_file(tmp_path: Path) -> None:
    assert parsed(tmp_path, []).url == URL_DEFAULT
    conf = "webServiceUrl=http://a:8080\nbrokerServiceUrl=pulsar://a:1\nauthPlugin=token\n"
    conf += "authParams=token:one\ntlsEnableHostnameVerification=false\n"
    access = parsed(tmp_path, [], conf)
    assert (access.url, access.conf.auth_params) == ("pulsar://a:1", "token:one")
    assert not access.conf.validate_hostname
    assert "token:one" not in repr(access)
    options = ["-u", "pulsar://b:2", "--auth-params", "token:two", "--tls-hostname-verification"]
    access = parsed(tmp_path, [*options, "--trust-cert-file", "ca.pem"], conf)
    assert (access.url, access.conf.auth_params) == ("pulsar://b:2", "token:two")
    assert access.conf.validate_hostname
    assert access.conf.trust_certs == "ca.pem"
    assert isinstance(from_config(access.conf.auth_plugin, access.conf.auth_params), Authentication)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--auth-plugin", "odd"], "Error: authentication: 'odd' is none of"),
        (["--tls-cert-file", "c"], "Error: tls_certificate_file_path, tls_private_key_file_path"),
        (["-cf", "/nowhere/client.conf"], "can't be read"),
    ],
)
def test_wrong_options_are_one_sentence(options: list[str], text: str) -> None:
    for group, command in (
        (client, [*options, "produce", "t", "-m", "x"]),
        (perf, ["produce", "t", *options]),
        (perf, ["consume", "t", *options]),
    ):
        result = CliRunner().invoke(group, command)
        assert result.exit_code == 2, result.output
        # One sentence follows the usage.
        (sentence,) = [line for line in result.output.splitlines() if line.startswith("Error: ")]
        assert result.output.endswith(f"\n{sentence}\n")
        assert text in sentence

"""`geminga tokens` (spec PX-20)."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geminga.cli.tokens import tokens


def run(*args: str, env: dict[str, str] | None = None, typed: str | None = None) -> Result:
    return CliRunner().invoke(tokens, args, env=env or {}, input=typed)


def test_a_secret_key_makes_and_validates_a_token(tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    assert run("create-secret-key", "-o", str(key)).exit_code == 0
    assert len(key.read_bytes()) == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    made = run("create", "-sk", f"file://{key}", "-s", "joe", "-e", "1h", "-hs", "kid=k1")
    assert made.exit_code == 0
    token = made.output.strip()
    header, _, claims = run("show", token).output.strip().partition("\n---\n")
    assert json.loads(header) == {"alg": "HS256", "kid": "k1"}
    assert json.loads(claims)["sub"] == "joe"
    for result in (
        run("validate", "-sk", str(key), token),
        run("validate", "-sk", str(key), env={"TOKEN": token}),
        run("validate", "-sk", str(key), "-i", typed=token + "\n"),
    ):
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["sub"] == "joe"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_key_pair(tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    made = run(
        "create-key-pair", "-a", algorithm,
        "--output-private-key", str(private), "--output-public-key", str(public),
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    token = run("create", "-pk", str(private), "-s", "joe").output.strip()
    (tmp_path / "token").write_text(token + "\n")
    file = str(tmp_path / "token")
    assert run("validate", "-a", algorithm, "-pk", str(public), "-f", file).exit_code == 0
    wrong = "ES384" if algorithm == "RS256" else "RS256"
    assert run("validate", "-a", wrong, "-pk", str(public), "-f", file).exit_code == 2
    if algorithm == "RS256":
        assert run("validate", "-a", "ES256", "-pk", str(public), "-f", file).exit_code == 2


def test_a_token_that_is_not_good_ends_with_1() -> None:
    secret = base64.b64encode(bytes(range(32))).decode()
    token = run("create", "-sk", secret, "-s", "joe", "-e", "0s").output.strip()
    result = run("validate", "-sk", secret, token)
    assert (result.exit_code, "expired" in result.output) == (1, True)
    assert run("show", "rubbish").exit_code == 1


KEY = "A" * 43 + "="


@pytest.mark.parametrize(
    "args",
    [
        ("create", "-s", "joe"),
        ("create", "-s", "joe", "-sk", "AAAA"),
        ("create", "-s", "joe", "-sk", "?"),
        ("create", "-s", "joe", "-pk", "AAAA"),
        ("create", "-s", "joe", "-sk", KEY, "-pk", "AAAA"),
        ("create", "-s", "joe", "-sk", KEY, "-e", "soon"),
        ("create", "-s", "joe", "-sk", KEY, "-hs", "x"),
        ("create", "-s", "joe", "-sk", KEY, "-a", "RS256"),
        ("create-secret-key", "-a", "RS256"),
        ("create-key-pair", "-a", "HS256", "--output-private-key", "a", "--output-public-key", "b"),
        ("validate", "x"),
        ("show",),
        ("show", "-f", "/nowhere/token"),
    ],
    ids=" ".join,
)
def test_bad_usage_ends_with_2(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert "Error: " in result.output


def test_base64_goes_to_stdout() -> None:
    text = run("create-secret-key", "-a", "HS512", "-b").output
    assert len(base64.b64decode(text)) == 64

"""Hostile peers, and failing plug-ins (spec PX-24)."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1

from geminga_runtime.auth.api import AuthenticationFailed, Exchange, Identity, Peer
from geminga_runtime.auth.basic import BasicProvider
from geminga_runtime.auth.service import Authenticator
from geminga_runtime.logs import SHOWN_CHARACTERS_MAX, shown
from geminga_runtime.observing.log_setup import LogSettings, set_up_logging

PEER = Peer("1.2.3.4:5")


async def test_an_unknown_user_costs_as_much_as_a_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = bcrypt.using(rounds=4).hash("right")
    slower = bcrypt.using(rounds=5).hash("right")
    lines = f"sha:{ldap_sha1.hash('x')}\na:{slow}\nb:{slower}\napr:{apr_md5_crypt.hash('x')}\n"
    provider = BasicProvider(lines.encode())
    compared: list[str] = []
    verify = provider._context.verify

    def spy(password: str, hashed: bytes) -> bool:
        compared.append(hashed.decode())
        return verify(password, hashed)

    monkeypatch.setattr(provider._context, "verify", spy)
    with pytest.raises(AuthenticationFailed):
        await provider.step(b"nobody:right")
    assert compared == [slower]
    assert await provider.step(b"a:right") == Identity("a", "basic")
    assert compared == [slower, slow]
    # A right password is not hashed again, others are.
    assert await provider.step(b"a:right") == Identity("a", "basic")
    assert compared == [slower, slow]
    for wrong in (b"a:wrong", b"b:wrong"):
        with pytest.raises(AuthenticationFailed):
            await provider.step(wrong)
    assert compared == [slower, slow, slow, slower]


async def test_an_empty_password_file_admits_nobody() -> None:
    with pytest.raises(AuthenticationFailed):
        await BasicProvider(b"").step(b"a:b")


class Broken:
    method = "broken"
    name = "Broken"

    def begin(self, peer: Peer) -> Exchange:
        return self

    async def step(self, data: bytes) -> Identity:
        raise RuntimeError(data.decode())


async def test_a_failing_plug_in_refuses_and_leaks_nothing() -> None:
    service = Authenticator([Broken()])
    with pytest.raises(AuthenticationFailed) as caught:
        await service.begin("broken", PEER).step(b"s3cret")
    assert str(caught.value) == "Broken failed with RuntimeError"
    assert dict(service.failures) == {("Broken", "broken", "provider_failed"): 1}


def test_unknown_methods_share_one_label() -> None:
    service = Authenticator([Broken()])
    for number in range(50):
        with pytest.raises(AuthenticationFailed) as caught:
            service.begin(f"m{number}" + "x" * 100_000, PEER)
        assert len(str(caught.value)) < 2 * SHOWN_CHARACTERS_MAX
    assert dict(service.failures) == {("none", "unknown", "unsupported_method"): 50}


def test_a_line_of_the_log_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_logging(LogSettings())
        logging.getLogger("geminga").warning("role=%s", "a\n2026 INFO b\r\x1b[2J\u2028c")
        assert isinstance(sys.stderr, io.StringIO)
        lines = sys.stderr.getvalue().splitlines()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert len(lines) == 1
    assert lines[0].endswith(r"role=a\x0a2026 INFO b\x0d\x1b[2J\u2028c")
    assert shown("a" * 1000) == "a" * SHOWN_CHARACTERS_MAX + "... (700 more)"

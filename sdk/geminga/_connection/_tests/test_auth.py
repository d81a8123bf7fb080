from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import Authentication, AuthenticationBasic, AuthenticationToken
from geminga._tests.fake_broker import fake_broker

SECRET = "s3cret.t0ken"


@pytest.mark.parametrize("kind", ["text", "prefixed", "path", "url", "variable", "function"])
async def test_kinds_of_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("GEMINGA_TEST_TOKEN", SECRET)
    file = tmp_path / "token"
    file.write_text(SECRET + "\n")
    given = {
        "text": SECRET,
        "prefixed": f"token:{SECRET}",
        "path": file,
        "url": file.as_uri(),
        "variable": "env:GEMINGA_TEST_TOKEN",
        "function": lambda: SECRET,
    }[kind]
    who = AuthenticationToken(given)
    assert await who.data() == SECRET.encode()
    assert await who.http_headers() == {"Authorization": f"Bearer {SECRET}"}
    assert who.method_name == "token"
    assert SECRET not in repr(who)


async def test_a_token_file_that_is_away_for_a_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As during its renewal: connections don't end because of that."""
    file = tmp_path / "token"
    file.write_text(SECRET)
    who = AuthenticationToken(file)
    assert await who.data() == SECRET.encode()
    for text in (None, "", "two words"):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        assert await who.data() == SECRET.encode()
    assert caplog.text.count("using the last valid token") == 1
    assert SECRET not in caplog.text
    file.write_text("fresh")
    assert await who.data() == b"fresh"


async def test_basic() -> None:
    who = AuthenticationBasic("me", SECRET)
    assert who.method_name == "basic"
    assert await who.data() == f"me:{SECRET}".encode()
    assert (await who.http_headers())["Authorization"].startswith("Basic bWU6")
    assert SECRET not in repr(who) + repr(vars(geminga.ClientOptions(authentication=who)))
    with pytest.raises(geminga.InvalidArgumentError, match="username"):
        AuthenticationBasic("a:b", "")
    with pytest.raises(geminga.InvalidArgumentError, match="password must be a text"):
        AuthenticationBasic("a", b"p")


@pytest.mark.parametrize("wrong", ["", "two words", 5, "\u00e4"])
def test_wrong_tokens_are_refused_at_the_call(wrong: str) -> None:
    with pytest.raises(geminga.InvalidArgumentError, match="token") as caught:
        AuthenticationToken(wrong)
    assert not wrong or str(wrong) not in str(caught.value)


def _raise() -> str:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    "given", [_raise, lambda: 5, lambda: "", Path("/no/such/file"), "env:NO_SUCH_VARIABLE"]
)
async def test_no_token_to_be_had(given: object) -> None:
    with pytest.raises(geminga.AuthenticationError) as caught:
        await AuthenticationToken(given).data()
    assert SECRET not in str(caught.value)
    assert given is not _raise or caught.value.__suppress_context__


async def test_refused(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with fake_broker() as broker:
        broker.accepts = lambda data: False
        async with broker.client(authentication=AuthenticationToken(SECRET)) as client:
            with pytest.raises(geminga.AuthenticationError, match="who are you"):
                await client.create_producer("t")
            assert SECRET not in caplog.text + repr(client) + repr(client._core.options)
    with pytest.raises(geminga.InvalidArgumentError, match="authentication"):
        geminga.connect("pulsar://h", authentication=SECRET)


async def test_a_client_without_credentials_is_told_so(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        broker.accepts = lambda data: False
        async with broker.client() as client:
            with pytest.raises(geminga.AuthenticationError, match="no credentials were given"):
                await client.create_producer("t")


class Renewed(Authentication):
    """Another secret each time, and finally none."""

    def __init__(self) -> None:
        super().__init__("token")
        self.left = [b"three", b"two", b"one"]

    async def data(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self.left:
            raise geminga.AuthenticationError("no token is left")
        return self.left.pop()


async def test_refreshed_when_the_broker_asks(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(authentication=Renewed()) as client:
        producer = await client.create_producer("t")
        assert broker.auth == [("token", b"one")]
        for secret in (b"two", b"three"):
            broker.sessions[0].challenge()
            await trio.sleep(1)
            assert broker.auth[-1] == ("token", secret)
            await producer.send(b"still here")
        # Without a secret the connection is closed, and then the producer.
        broker.sessions[0].challenge()
        await trio.sleep(5)
        with pytest.raises(geminga.AuthenticationError, match="no token is left"):
            await producer.send(b"")


async def test_challenge_without_authentication(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        broker.sessions[0].challenge()
        await trio.sleep(1)
        assert len(broker.auth) == 2
        await producer.send(b"connected again")

"""Attacks of clients and brokers on the proxy's binary side (spec PX-02, PX-03, PX-20)."""

from __future__ import annotations

import math
import resource
import time
from functools import partial
from pathlib import Path

import pytest
import trio

from geminga_protocol import tokens
from geminga_protocol.commands import answers, connection, lookup, producing, schemas
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, FeatureFlags, Schema, ServerError
from geminga_proxy.binary import machine as machine_module
from geminga_proxy.binary._tests.played import (
    AUTH,
    SECRET,
    TOPIC,
    C,
    PlayedBroker,
    Wire,
    brokers,
    client,
    proxied,
    token,
    until,
)
from geminga_proxy.bounds import RequestBudget
from geminga_runtime.auth.own import own_credentials

FORWARDS = AUTH | {
    "forwardAuthorizationCredentials": "true",
    "authenticationRefreshCheckSeconds": "1",
}
MIB = 1 << 20


async def test_a_lookup_is_not_redirected_to_a_stranger(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers(2) as (first, evil), proxied(first, **AUTH) as running:
        first.redirect_to = evil.port
        wire = await client(running)
        hello = connection.connect("c", auth_method_name="token", auth_data=token("joe"))
        await wire.ask(hello, C.CONNECTED)
        answer = await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)
        assert answer.lookupTopicResponse.error == ServerError.ServiceNotReady
        assert evil.hellos == []
        assert f"redirects to 127.0.0.1:{evil.port}" in caplog.text
        assert "brokerProxyAllowedHostNames" in caplog.text
    allowed = {"brokerProxyAllowedHostNames": "127.0.0.1", "brokerProxyAllowedTargetPorts": "*"}
    async with brokers(2) as (first, second), proxied(first, **AUTH, **allowed) as running:
        first.redirect_to = second.port
        wire = await client(running)
        await wire.ask(hello, C.CONNECTED)
        answer = await wire.ask(lookup.lookup(TOPIC, 5), C.LOOKUP_RESPONSE)
        url = f"pulsar://127.0.0.1:{second.port}"
        assert answer.lookupTopicResponse.brokerServiceUrl == url


# ---- tunnels of clients whose credentials are forwarded ----


def short_token(role: str, lasts_s: float) -> bytes:
    return tokens.create(SECRET, role, expires_at_s=math.ceil(time.time() + lasts_s)).encode()


async def forwarded_tunnel(running: object, broker: PlayedBroker, data: bytes) -> Wire:
    wire = await client(running)  # type: ignore[arg-type]
    hello = connection.connect(
        "c",
        auth_method_name="token",
        auth_data=data,
        proxy_to_broker_url=f"127.0.0.1:{broker.port}",
        feature_flags=FeatureFlags(supports_auth_refresh=True),
    )
    await wire.ask(hello, C.CONNECTED)
    return wire


async def busy_until_closed(wire: Wire, shown: bytes = b"", times: int = 0) -> float:
    """Publish on, and show these credentials in between; when the tunnel ended."""
    with trio.fail_after(60):
        try:
            while True:
                for _ in range(times):
                    await wire.send(connection.auth_response("c", "token", shown))
                await wire.ask(producing.producer(TOPIC, 1, 2), C.PRODUCER_SUCCESS)
                await trio.sleep(0.05)
        except (AssertionError, trio.BrokenResourceError):
            return time.time()


@pytest.mark.slow
async def test_expired_credentials_that_the_broker_ignores_end_the_tunnel() -> None:
    async with brokers() as (broker,), proxied(broker, **FORWARDS) as running:
        began_s = time.time()
        wire = await forwarded_tunnel(running, broker, short_token("joe", 2))
        assert await busy_until_closed(wire) > began_s + 2


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 7])
async def test_fresh_credentials_keep_the_tunnel(pieces: int) -> None:
    # Fresh ones count from 3 s before the expiry on, and until 6 s after it.
    forwards = FORWARDS | {"authenticationRefreshCheckSeconds": "3"}
    async with brokers() as (broker,), proxied(broker, **forwards) as running:
        wire = await forwarded_tunnel(running, broker, short_token("joe", 2))
        began_s = time.time()
        fresh = connection.auth_response("c", "token", short_token("joe", 600))
        await trio.sleep(1.5)
        step = math.ceil(len(fresh) / pieces)
        for at in range(0, len(fresh), step):
            await wire.stream.send_all(fresh[at : at + step])
            await trio.sleep(0.02)
        while time.time() - began_s < 10:
            await wire.ask(producing.producer(TOPIC, 1, 2), C.PRODUCER_SUCCESS)
            await trio.sleep(0.1)
        assert running.service.metrics.tunnels == 1


@pytest.mark.slow
@pytest.mark.parametrize("shown", [b"rubbish", b"old", b"another"])
async def test_invalid_credentials_do_not_keep_the_tunnel(shown: bytes) -> None:
    async with brokers() as (broker,), proxied(broker, **FORWARDS) as running:
        old = short_token("joe", 2)
        data = {b"old": old, b"another": short_token("jim", 600)}.get(shown, shown)
        wire = await forwarded_tunnel(running, broker, old)
        began_s = time.time()
        # They are looked for from shortly before the expiry on.
        assert await busy_until_closed(wire, data, 10) < began_s + 20


# ---- memory ----


def _rss_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.alone
@pytest.mark.slow
async def test_large_requests_are_refused_and_bounded() -> None:
    """A broker that never answers, and requests as large as frames may be."""
    silent: list[trio.SocketStream] = []

    async def never(stream: trio.SocketStream) -> None:
        silent.append(stream)
        wire = Wire(stream)
        await wire.next()
        await wire.send(connection.connected("silent", protocol_version=19))
        try:
            while await stream.receive_some():
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, never, 0, host="127.0.0.1"))
        broker = PlayedBroker(listener.socket.getsockname()[1])
        async with proxied(broker) as running:
            long_topic = lookup.lookup("persistent://a/b/" + "x" * (4 * MIB), 1)
            wire = await client(running)
            await wire.ask(connection.connect("c"), C.CONNECTED)
            answer = await wire.ask(long_topic, C.LOOKUP_RESPONSE)
            assert answer.lookupTopicResponse.error == ServerError.NotAllowedError
            schema = Schema(name="s", type=Schema.Type.Value("String"), schema_data=b"y" * 4 * MIB)
            before = _rss_peak_bytes()
            refused = 0
            for number in range(40):
                wire = await client(running)
                await wire.ask(connection.connect("c"), C.CONNECTED)
                request = schemas.get_or_create_schema(number, TOPIC, schema)
                refused += await _is_refused(wire, request, running.service.budget)
            assert refused >= 30
            assert running.service.budget.held.bytes <= running.service.budget.held.bytes_max
            assert _rss_peak_bytes() - before < 400 * MIB
            # Small ones are answered all the same.
            for stream in silent:
                await stream.aclose()
            await until(lambda: running.service.budget.held.bytes == 0)
        nursery.cancel_scope.cancel()


async def _is_refused(wire: Wire, request: bytes, budget: RequestBudget) -> bool:
    """Whether the proxy answers a large request itself, or ends the connection before it is whole;
    else it is kept for a broker.
    """
    waiting, refused = budget.waiting, False

    async with trio.open_nursery() as nursery:

        async def wait_kept() -> None:
            await until(lambda: budget.waiting > waiting)
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_kept)
        try:
            await wire.send(request)
            frame = await wire.next()
        except trio.BrokenResourceError:
            frame = None
        if frame is not None:
            answer = frame.command.getOrCreateSchemaResponse
            assert answer.error_code == ServerError.ServiceNotReady
        refused = True
        nursery.cancel_scope.cancel()
    return refused


@pytest.mark.slow
async def test_a_large_request_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "KEEP_ALIVE_S", 0.5)
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        await wire.ask(connection.connect("c"), C.CONNECTED)
        part = lookup.lookup("persistent://a/b/" + "x" * (4 * MIB), 1)[: 2 * MIB]
        await wire.send(part)
        await until(lambda: running.service.budget.held.bytes >= MIB)
        with trio.move_on_after(60) as patience:
            while running.service.budget.held.bytes:
                try:
                    await wire.send(b"x")
                except trio.BrokenResourceError:
                    break
                await trio.sleep(0.05)
        assert not patience.cancelled_caught
        await until(lambda: running.service.budget.held.bytes == 0)


@pytest.mark.slow
async def test_answers_that_a_client_does_not_read_stop_the_broker() -> None:
    names = [f"persistent://public/default/{'n' * 200}{number}" for number in range(5000)]
    sent = 0

    class Lists(PlayedBroker):
        async def _answer(self, wire: Wire, frame: object) -> None:
            nonlocal sent
            if frame.type == C.GET_TOPICS_OF_NAMESPACE:  # type: ignore[attr-defined]
                asked = frame.command.getTopicsOfNamespace  # type: ignore[attr-defined]
                await wire.send(lookup.get_topics_of_namespace_response(asked.request_id, names))
                sent += 1
            else:
                await super()._answer(wire, frame)  # type: ignore[arg-type]

    async with trio.open_nursery() as nursery:
        broker = Lists()
        listen = partial(trio.serve_tcp, broker.serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(listen)
        broker.port = listener.socket.getsockname()[1]
        async with proxied(broker) as running:
            wire = await client(running)
            await wire.ask(connection.connect("c"), C.CONNECTED)
            await wire.send(
                *(lookup.get_topics_of_namespace(number, "public/default") for number in range(300))
            )
            last = -1
            while last != sent:
                last = sent
                await trio.sleep(0.5)
            assert sent < 60
            for _ in range(300):
                await wire.expect(C.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        nursery.cancel_scope.cancel()


async def test_clients_texts_are_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with brokers() as (broker,), proxied(broker) as running:
        wire = await client(running)
        hello = connection.connect("c", proxy_to_broker_url="a" * 60_000)
        await wire.ask(hello, C.ERROR)
        assert await wire.ended()
        assert max(len(line) for line in caplog.messages) < 2000


# ---- the proxy's own token ----


def test_the_last_token_is_used_while_its_file_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    own = own_credentials("token", f"file:{file}")
    assert own.data() == b"first"
    for broken in (None, "", "two words", "\u00e4"):
        file.unlink(missing_ok=True)
        if broken is not None:
            file.write_text(broken)
        assert own.data() == b"first"
        assert own.header() == "Bearer first"
    assert caplog.text.count("using the last valid token") >= 1
    assert "two words" not in caplog.text
    file.write_text("second\n")
    assert own.data() == b"second"


def test_the_bytes_of_auth_response_are_known() -> None:
    """`renewal` finds AUTH_RESPONSE in a tunnel by these bytes."""
    frame = connection.auth_response("c", "token", b"x")
    assert frame[8:10] == bytes([8, BaseCommand.AUTH_RESPONSE])
    assert answers.error(1, ServerError.UnknownError, "x")[8:10] != frame[8:10]

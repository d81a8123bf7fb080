"""Connecting to a bookie, with start-TLS if wanted (Apache's PerChannelBookieClient)."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

import trio

from geminga_bookie.wire.auth import (
    AUTHENTICATION_DISABLED,
    MESSAGES_MAX,
    PAYLOAD_BYTES_MAX,
    AuthFailed,
    ClientAuth,
    ClientExchange,
)
from geminga_bookie.wire.options import RemoteOptions
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.framing import FrameCutter, WireError
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    AUTH,
    EOK,
    START_TLS,
    AuthMessage,
    Response,
    StatusCode,
)
from geminga_runtime.connect import connect
from geminga_runtime.errors import TlsFailed
from geminga_runtime.stream import FramedStream

T = TypeVar("T")

_ANSWER_BYTES_MAX = 1024


async def dial(host: str, port: int, options: RemoteOptions, deadline: float) -> FramedStream:
    """A connection that takes requests. Raises ConnectFailed."""
    return await connect(
        host,
        port,
        deadline=deadline,
        write_high_bytes=options.unanswered_bytes_max,
        tls=options.tls,
        start_tls=ask_for_tls,
        introduce=None if options.auth is None else partial(authenticate, options.auth),
    )


async def ask_for_tls(stream: trio.abc.Stream) -> None:
    """START_TLS: the handshake follows. Raises TlsFailed, OSError."""
    request = v3.request(START_TLS, 0)
    request.startTLSRequest.SetInParent()
    await stream.send_all(v3.frame(request))
    cutter = FrameCutter(_ANSWER_BYTES_MAX)
    while True:
        data = bytes(await stream.receive_some(_ANSWER_BYTES_MAX))
        if not data:
            raise ConnectionResetError("the bookie closed the connection before TLS")
        buffer, bounds = cutter.feed(data)
        if cutter.failure is not None:
            raise TlsFailed(f"asked for TLS: {cutter.failure}")
        if len(bounds) > 1:
            _check(buffer, bounds)
            return


def _check(buffer: bytes, bounds: list[int]) -> None:
    if len(bounds) != 2 or bounds[1] != len(buffer):
        # Bytes that came before TLS were not sent by whom the certificate names.
        raise TlsFailed("asked for TLS: the bookie sent more than its answer")
    try:
        (answer,) = v3.decode_answers(buffer, bounds)
    except WireError as error:
        raise TlsFailed(f"asked for TLS: {error}") from None
    if not isinstance(answer, Response) or answer.header.operation != START_TLS:
        raise TlsFailed("asked for TLS: the answer is of another kind")
    if answer.status != EOK:
        raise TlsFailed("the bookie has no TLS")


async def authenticate(auth: ClientAuth, stream: trio.abc.Stream) -> None:
    """Exchange authentication messages (Apache's AuthHandler.ClientSideHandler). Raises OSError if
    the bookie refuses.
    """
    try:
        exchange = await _of_plugin(_begun(auth))
        payload: bytes | None = await _of_plugin(exchange.first())
        for txn in range(MESSAGES_MAX):
            if payload is None:
                return
            request = v3.request(AUTH, txn)
            request.authRequest.authPluginName = auth.plugin_name
            request.authRequest.payload = payload
            await stream.send_all(v3.frame(request))
            answer = await _auth_answer(stream)
            if answer.authPluginName == AUTHENTICATION_DISABLED:
                return
            if answer.authPluginName != auth.plugin_name:
                raise AuthFailed(f"the bookie speaks {answer.authPluginName[:100]!r}")
            payload = await _of_plugin(exchange.process(answer.payload))
    except (AuthFailed, WireError) as error:
        raise PermissionError(f"authentication failed: {error}") from None
    raise PermissionError("authentication failed: it has no end")


async def _begun(auth: ClientAuth) -> ClientExchange:
    return auth.begin()


async def _of_plugin(step: Awaitable[T]) -> T:
    """What a plug-in returns. Raises AuthFailed instead of its errors: they fail this connection
    only, and their texts may hold the bookie's data.
    """
    try:
        return await step
    except AuthFailed:
        raise
    except Exception as error:
        raise AuthFailed(f"{type(error).__name__} in the plug-in") from error


async def _auth_answer(stream: trio.abc.Stream) -> AuthMessage:
    """Raises AuthFailed, WireError, OSError."""
    cutter = FrameCutter(2 * PAYLOAD_BYTES_MAX)
    while True:
        data = bytes(await stream.receive_some(_ANSWER_BYTES_MAX))
        if not data:
            raise AuthFailed("the bookie closed the connection")
        buffer, bounds = cutter.feed(data)
        if cutter.failure is not None:
            raise cutter.failure
        if len(bounds) > 1:
            break
    (answer,) = v3.decode_answers(buffer, bounds[:2])
    if len(bounds) != 2 or bounds[1] != len(buffer) or not isinstance(answer, Response):
        raise AuthFailed("the bookie sent more than its answer")
    status = answer.status
    if status != EOK:
        raise AuthFailed(f"the bookie answered {StatusCode.Name(status)}")
    if answer.header.operation != AUTH or not answer.HasField("authResponse"):
        raise AuthFailed("the answer is of another kind")
    return answer.authResponse

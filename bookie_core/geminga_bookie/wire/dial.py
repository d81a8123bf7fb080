"""Connecting to a bookie, with start-TLS if wanted (Apache's PerChannelBookieClient)."""

from __future__ import annotations

import trio

from geminga_bookie.wire.options import RemoteOptions
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.framing import FrameCutter, WireError
from geminga_protocol.pb.bookkeeper_protocol_pb2 import EOK, START_TLS, Response
from geminga_runtime.connect import connect
from geminga_runtime.errors import TlsFailed
from geminga_runtime.stream import FramedStream

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

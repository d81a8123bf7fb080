"""Drives a session: bytes to frames, frames to handlers (spec PR-05, PR-16, OP-08)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import trio

from geminga_broker.authz.authorizer import Caller
from geminga_broker.service import BrokerService
from geminga_broker.session.consumers import acknowledge_run
from geminga_broker.session.limits import COMMAND_LIMITS, FIRST_FRAMES_BYTES_MAX
from geminga_broker.session.publishing import publish_run
from geminga_broker.session.session import Session, SessionClosed
from geminga_broker.session.table import ROUTES
from geminga_broker.session.turns import STEP_IDS, LongWork, run_in_turns
from geminga_protocol.commands import answers
from geminga_protocol.frames import (
    BROKEN,
    FRAME_PADDING_BYTES,
    SUBMESSAGE,
    Frame,
    FrameReader,
    FramingError,
)
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.pace import ends
from geminga_runtime.stream import RECEIVE_BYTES, FramedStream

_log = logging.getLogger(__name__)

SEND = int(BaseCommand.Type.SEND)
ACK = int(BaseCommand.Type.ACK)
_TLS_HELLO = b"\x16\x03"
"""First bytes of a TLS handshake (RFC 8446, 5.1)."""
READ_FRAMES = 1000
"""A read with more frames makes the next one smaller, down to READ_BYTES_MIN: all frames of a read
are handled in one turn of the loop, about 7 ms, while other tasks wait.
"""
READ_BYTES_MIN = 8 * 1024
"""Also of the first read; a full read with fewer frames doubles the next one."""
LAST_ANSWERS_S = 1.0
"""Time for a client to read its last responses after we ended the connection."""


async def handle_connection(
    stream: FramedStream, service: BrokerService, caller: Caller | None = None
) -> None:
    """Serve one client until it leaves, violates the protocol, is silent, or the broker stops.

    If `caller` is given, the client is already authenticated.
    """
    session = None
    try:
        async with trio.open_nursery() as nursery:
            session = Session(stream, service, nursery, caller)
            service.connections.opened(session)
            nursery.start_soon(stream.run_writer)
            nursery.start_soon(_keep_alive, session)
            with session.read_scope:
                await _read(session)
            with trio.move_on_after(LAST_ANSWERS_S):
                await _flush(stream)
            nursery.cancel_scope.cancel()
    finally:
        # All tasks of the session have ended: none can open anything after this.
        if session is not None:
            service.connections.ended(session, accepted=session.connected)
            await session.release()  # noqa: ASYNC102


async def _flush(stream: FramedStream) -> None:
    try:
        await stream.flush()
    except ConnectionLost:
        pass


async def _keep_alive(session: Session) -> None:
    interval_s = session.service.config.network.keep_alive_interval_s
    await session.liveness.keep_alive(interval_s, lambda: session.connected)
    await ends().turn()  # those that were opened together are silent together
    session.liveness.tell_silent(interval_s)
    session.stream.abort("the peer was silent")


async def _read(session: Session) -> None:
    """The only reader. Returns at the end of the connection, from either side."""
    message_size_max = session.service.config.network.max_message_size_bytes
    first_max = min(FIRST_FRAMES_BYTES_MAX - FRAME_PADDING_BYTES, message_size_max)
    reader = FrameReader(first_max, COMMAND_LIMITS, joins=True)
    receive, heard = session.stream.receive, session.liveness.heard
    backpressure = session.backpressure
    bytes_max = READ_BYTES_MIN
    try:
        while data := await receive(bytes_max):
            heard()
            if reader.max_message_size != message_size_max and session.connected:
                reader.max_message_size = message_size_max
            failure: FramingError | None = None
            try:
                frames = reader.feed(data)
            except FramingError as error:
                frames, failure = error.frames, error
            bytes_max = _next_read_bytes(bytes_max, len(data), len(frames) + reader.joined)
            if unfinished := serve_frames(session, frames):
                await _finish(session, unfinished)
            if failure is not None:
                if not session.connected and data.startswith(_TLS_HELLO):
                    raise SessionClosed("the peer speaks TLS on the plaintext port") from failure
                if failure.is_http:
                    raise SessionClosed(_speaks_http(session)) from failure
                raise SessionClosed(str(failure)) from failure
            del data, frames, unfinished  # don't keep an idle client's last messages
            if backpressure.overloaded:
                await backpressure.wait_ready()
            elif backpressure.gathers:
                await backpressure.wait_stored()
    except ConnectionLost as error:
        _log.debug("address=%s lost: %s", session.address, error)
    except SessionClosed as error:
        _log.warning("address=%s closed: %s", session.address, error)


def _speaks_http(session: Session) -> str:
    addresses = session.service.addresses
    places = " and ".join(url for url in (addresses.web_url, addresses.web_url_tls) if url)
    told = f" (the web service is at {places})" if places else ""
    return f"the peer speaks HTTP on the port for Pulsar's binary protocol{told}"


def _next_read_bytes(bytes_max: int, received: int, frames: int) -> int:
    if frames > READ_FRAMES:
        return max(bytes_max // 2, READ_BYTES_MIN)
    if received == bytes_max and frames <= READ_FRAMES // 2:
        return min(bytes_max * 2, RECEIVE_BYTES)
    return bytes_max


Unfinished = tuple[Iterator[None], Sequence[Frame]]
"""Steps of a long command, and the frames after it."""


async def _finish(session: Session, unfinished: Unfinished | None) -> None:
    while unfinished is not None:
        steps, frames = unfinished
        await run_in_turns(session, steps)
        unfinished = serve_frames(session, frames)


def serve_frames(session: Session, frames: Sequence[Frame]) -> Unfinished | None:
    """Handle frames in order; neighbouring SENDs go to their topics together, neighbouring ACKs to
    their consumers. Returns a long command to finish before other frames, usually None.

    Raises SessionClosed.
    """
    index, end = 0, len(frames)
    acknowledged = 0
    try:
        while index < end:
            frame = frames[index]
            kind = frame.type
            if kind == SEND:
                index = publish_run(session, frames, index)
                continue
            if kind == ACK:
                upto, ids = acknowledge_run(session, frames, index)
                if upto > index:
                    index = upto
                    acknowledged += ids
                    if acknowledged >= STEP_IDS and index < end:
                        raise LongWork(iter(()))
                    continue
            index += 1
            route = ROUTES.get(kind)
            if route is None:
                handle_unroutable(session, frame)
            elif session.connected or route.before_connect:
                route.run(session, getattr(frame.command, SUBMESSAGE[kind]))
            else:
                raise SessionClosed(f"{SUBMESSAGE[kind]} before CONNECT")
    except LongWork as work:
        return work.steps, frames[index:]
    return None


def handle_unroutable(session: Session, frame: Frame) -> None:
    """Respond to a broken command with an error if it has a request id; ignore commands that only
    brokers send. Raises SessionClosed for a broken command without request id.
    """
    if frame.type != BROKEN:
        _log.debug("address=%s ignored command of type %d", session.address, frame.type)
        return
    body = None
    if frame.command.HasField("type"):
        body = getattr(frame.command, SUBMESSAGE[frame.command.type])
    known = body.DESCRIPTOR.fields_by_name if body is not None else {}
    if body is None or "request_id" not in known or not body.HasField("request_id"):
        raise SessionClosed(str(frame.error))
    session.write(answers.error(body.request_id, ServerError.UnknownError, str(frame.error)))

"""Bytes in, frames out (spec PR-01, PR-02, PR-04, PR-05, PR-16; Apache's
LengthFieldBasedFrameDecoder and PulsarDecoder).

    totalSize u32 | commandSize u32 | command | headersAndPayload (only where something follows)

There are two kinds of wrong bytes:

- A wrong *length*: the next frame can't be found. `feed` raises FramingError (fatal), which holds
  the complete frames before it in the same feed, so that they can still be served.
- A wrong *command* in a correct frame: the frame has type BROKEN (0, which no command has), the
  part of the command that could be parsed, and `error`. A handler table has no entry for 0, so
  valid frames cost nothing extra.

A frame with an unknown command type has its number as type, and no error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn, cast

import msgspec
from google.protobuf.message import DecodeError, Message

from geminga_protocol.acks import ACK_BYTES_MIN, AckIds, cut_ack
from geminga_protocol.errors import RemoteProtocolError, other_protocol
from geminga_protocol.messages import (
    fault,
    has_bad_text,
    lacking,
    parser,
    text_fields,
    unknown_varint,
)
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_protocol.sends import SendJoiner, SendRun

MAX_MESSAGE_SIZE_DEFAULT = 5 * 1024 * 1024
"""Bytes of a message, unless CONNECTED has another bound (Apache's maxMessageSize)."""

FRAME_PADDING_BYTES = 10 * 1024
"""Bytes of a frame beyond the message size, for command and metadata (Apache's
MESSAGE_SIZE_FRAME_PADDING).
"""

BROKEN = 0
"""`Frame.type` of a frame with an invalid command; no command has this number."""

_SMALL_CHUNK_BYTES_MAX = 4096
_LENGTH = struct.Struct(">I")
_LENGTHS = struct.Struct(">II")
_parse = parser(BaseCommand)
_SEND = int(BaseCommand.Type.SEND)
_ACK = int(BaseCommand.Type.ACK)
_NO_COMMAND = BaseCommand()

SUBMESSAGE: dict[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.number != 1
}
"""Command type -> name of the field of BaseCommand that holds the command."""


_TEXTLESS = frozenset(
    kind
    for kind, name in SUBMESSAGE.items()
    if not text_fields(cast(Any, BaseCommand.DESCRIPTOR.fields_by_name[name].message_type))
)
"""Types without text fields, which need no check of UTF-8."""


LARGE_COMMAND_BYTES = 64 * 1024
"""Commands of this size and above get more checks."""


class CommandLimits(NamedTuple):
    """A server's bounds on commands, so that none takes long to parse.

    A frame within one feed is parsed whatever its size: feeds are small. For longer frames a
    command is bounded by `bytes_by_kind`, or else by `bytes_max`; a larger one is never parsed. A
    list in a command of 64 KiB or more may have `entries_max` texts.
    """

    bytes_max: int
    bytes_by_kind: Mapping[int, int]
    entries_max: int

    def of(self, front: memoryview) -> int:
        """The bound by the command's first two bytes, which in the usual encoding are its type."""
        kind = front[1] if front[0] == _TYPE_TAG else 0
        return self.bytes_by_kind.get(kind, self.bytes_max)


_TYPE_TAG = 8


class Frame(msgspec.Struct, gc=False, eq=False):
    """One frame. `payload` is a view of the bytes after the command, None without any: of the
    received bytes.
    """

    type: int
    command: BaseCommand
    payload: memoryview | None
    error: RemoteProtocolError | None = None
    body: Message | None = None
    """The field of the command that its type names, or None. Each access through the command would
    cost a tenth of a microsecond.
    """
    sends: SendRun | None = None
    """The joined SENDs of a frame of type SEND, which has no command then; None for all others."""
    acks: AckIds | None = None
    """The ids of an ACK of neighbouring entries, which has no command then; None for all others."""

    def __repr__(self) -> str:
        name = SUBMESSAGE.get(self.type, str(self.type))
        size = None if self.payload is None else self.payload.nbytes
        return f"<Frame {name} payload={size} error={self.error}>"


class FramingError(RemoteProtocolError):
    """Inconsistent lengths, or a frame above the limit: the connection must be closed.

    `frames` are the complete frames before it in the same feed; `is_http`: the peer speaks HTTP.
    """

    def __init__(self, message: str, frames: list[Frame], *, is_http: bool = False) -> None:
        super().__init__(message, fatal=True)
        self.frames = frames
        self.is_http = is_http


class FrameReader:
    """Splits a stream, received in any chunks, into frames.

    Holds only received bytes of one unfinished frame, at most `max_message_size` + 10 KiB; an
    announced size allocates nothing. With `limits` commands are bounded too. With `joins`
    neighbouring SENDs of one producer may come as one frame, with `sends`, and ACKs with `acks`.
    """

    __slots__ = (
        "_chunks", "_failure", "_held", "_joiner", "_limits", "_needed", "_size_max", "joined",
    )  # fmt: skip

    def __init__(
        self,
        max_message_size: int = MAX_MESSAGE_SIZE_DEFAULT,
        limits: CommandLimits | None = None,
        *,
        joins: bool = False,
    ) -> None:
        self._joiner = SendJoiner() if joins else None
        self.joined = 0
        """The number of frames of the last feed that were joined to others (in `sends`)."""
        self._chunks: list[bytes | bytearray] = []
        self._held = 0
        self._needed = 0
        self._failure: str | None = None
        self._limits = limits
        self._size_max = max_message_size + FRAME_PADDING_BYTES - 4

    @property
    def buffered(self) -> int:
        """Held bytes of the unfinished frame."""
        return self._held

    @property
    def max_message_size(self) -> int:
        """Bound of a message's bytes; a client sets it by CONNECTED."""
        return self._size_max + 4 - FRAME_PADDING_BYTES

    @max_message_size.setter
    def max_message_size(self, value: int) -> None:
        self._size_max = value + FRAME_PADDING_BYTES - 4

    def take_rest(self) -> bytes:
        """Take the bytes of the unfinished frame, for the stream's next reader."""
        rest = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        return rest

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now, in order. Payloads are views of `data` unless the frame
        spans feeds.

        Raises FramingError, also on every later call.
        """
        frames: list[Frame] = []
        self.joined = 0
        if self._failure is not None:
            raise FramingError(self._failure, frames)
        start = 0
        if self._held:
            start = self._finish_held(data, frames)
            if start < 0:
                return frames
        start = self._split(data, start, len(data), frames)
        if start < len(data):
            self._hold(data[start:])
            self._know_needed(data, start, len(data), frames)
        return frames

    def _split(self, data: bytes, start: int, end: int, frames: list[Frame]) -> int:
        """Append the complete frames of `data` from `start` to `end`; returns where the first
        unfinished one begins.
        """
        view = memoryview(data)
        size_max = self._size_max
        unpack = _LENGTHS.unpack_from
        append = frames.append
        submessage = SUBMESSAGE
        joiner = self._joiner
        if joiner is not None:
            start = self._join(joiner.cut(view, start, size_max), frames)
        while end - start >= 8:
            total, command_size = unpack(data, start)
            if total > size_max or command_size > total - 4:
                self._fail_lengths(total, command_size, frames)
            stop = start + 4 + total
            if stop > end:
                break
            start += 8
            command_end = start + command_size
            if joiner is not None and command_size >= ACK_BYTES_MIN and data[start + 1] == _ACK:
                acks = cut_ack(data, start, command_end)
                if acks is not None:
                    append(Frame(_ACK, _NO_COMMAND, None, None, None, None, acks))
                    start = stop
                    continue
            payload = view[command_end:stop] if command_end < stop else None
            try:
                command = _parse(view[start:command_end])
                # The usual encoding begins with the type. This check saves the costly one of the
                # whole envelope.
                kind = data[start + 1] if command_size > 1 and data[start] == 8 else 0
                if command.type == kind and kind in submessage:
                    body: Message = getattr(command, submessage[kind])
                    if kind in _TEXTLESS and command_size < LARGE_COMMAND_BYTES:
                        if not body.IsInitialized():
                            text = lacking(submessage[kind], body, command_size)
                            append(_broken(command, payload, text))
                            start = stop
                            continue
                        fine = True
                    else:
                        fine = (
                            command_size < LARGE_COMMAND_BYTES
                            and body.IsInitialized()
                            and not has_bad_text(body)
                        )
                    if fine:
                        append(Frame(kind, command, payload, None, body))
                        if kind == _SEND and joiner is not None:
                            joiner.parsed(command, data[start:command_end])
                            stop = self._join(joiner.cut(view, stop, size_max), frames)
                        start = stop
                        continue
                append(_odd_frame(command, command_size, payload, self._limits))
            except DecodeError as error:
                append(_undecodable_frame(payload, error))
            start = stop
        return start

    def _join(self, found: tuple[int, SendRun | None], frames: list[Frame]) -> int:
        """Append joined SENDs as one frame; returns where the next frame begins."""
        start, run = found
        if run is not None:
            self.joined += len(run.payloads)
            before = frames[-1].sends if frames else None
            if before is not None:
                # The first one was received in two feeds, and no other frame is between.
                before.payloads += run.payloads
            else:
                self.joined -= 1
                frames.append(Frame(_SEND, _NO_COMMAND, None, None, None, run))
        return start

    def _finish_held(self, data: bytes, frames: list[Frame]) -> int:
        """Complete the held frame. Returns how many bytes of `data` that took, -1 if the frame is
        still unfinished.
        """
        taken = 0
        size = len(data)
        while self._held + size - taken >= self._needed:
            upto = taken + self._needed - self._held
            self._hold(data[taken:upto])
            taken = upto
            joined = b"".join(self._chunks)
            if not self._know_needed(joined, 0, len(joined), frames):
                self._chunks.clear()
                self._held = 0
                self._split(joined, 0, len(joined), frames)
                return taken
        if taken < size:
            self._hold(data[taken:])
        return -1

    def _hold(self, data: bytes) -> None:
        if not data:
            return
        self._held += len(data)
        # Join small chunks: a slow peer must not make us hold an object for every few bytes.
        if len(data) > _SMALL_CHUNK_BYTES_MAX:
            self._chunks.append(data)
        elif self._chunks and isinstance(self._chunks[-1], bytearray):
            self._chunks[-1] += data
        else:
            self._chunks.append(bytearray(data))

    def _know_needed(self, data: bytes, start: int, end: int, frames: list[Frame]) -> bool:
        """Compute how many bytes the held frame needs; returns whether some are missing."""
        have = end - start
        if have < 4:
            self._needed = 4
            return True
        (total,) = _LENGTH.unpack_from(data, start)
        if total < 4 or total > self._size_max:
            self._fail_lengths(total, 0, frames)
        if have < 8:
            self._needed = 8
            return True
        (command_size,) = _LENGTH.unpack_from(data, start + 4)
        if command_size > total - 4:
            self._fail_lengths(total, command_size, frames)
        if self._limits is not None and command_size >= LARGE_COMMAND_BYTES:
            if have < 10:
                self._needed = 10
                return True
            limit = self._limits.of(memoryview(data)[start + 8 : start + 10])
            if command_size > limit:
                text = f"command of {command_size} bytes is above the limit of {limit} bytes"
                self._fail(text, frames)
        self._needed = total + 4
        return have < self._needed

    def _fail_lengths(self, total: int, command_size: int, frames: list[Frame]) -> NoReturn:
        if total > self._size_max:
            limit = self._size_max + 4
            other = other_protocol(_LENGTH.pack(total))
            if other is not None:
                text = f"the peer speaks {other}, not Pulsar's binary protocol"
                self._fail(text, frames, is_http=other.startswith("HTTP"))
            self._fail(f"frame of {total + 4} bytes is above the limit of {limit} bytes", frames)
        self._fail(f"frame lengths don't fit: total {total}, command {command_size}", frames)

    def _fail(self, text: str, frames: list[Frame], *, is_http: bool = False) -> NoReturn:
        self._failure = text
        self._chunks.clear()
        self._held = 0
        raise FramingError(text, frames, is_http=is_http)


def _odd_frame(
    command: BaseCommand, size: int, payload: memoryview | None, limits: CommandLimits | None
) -> Frame:
    """A frame that decodes but needs more checks: odd encoding, unknown type, fields
    missing, or large.
    """
    if command.HasField("type"):
        body: Message = getattr(command, SUBMESSAGE[command.type])
        entries_max = None if limits is None else limits.entries_max
        text = fault(SUBMESSAGE[command.type], body, size, entries_max)
        if text is None:
            return Frame(command.type, command, payload, None, body)
    else:
        number = unknown_varint(command, 1)
        if number:
            return Frame(number, command, payload)
        text = "command has no type"
    return _broken(command, payload, text)


def _broken(command: BaseCommand, payload: memoryview | None, text: str) -> Frame:
    return Frame(BROKEN, command, payload, RemoteProtocolError(text))


def _undecodable_frame(payload: memoryview | None, cause: DecodeError) -> Frame:
    error = RemoteProtocolError(f"command can't be decoded: {cause}", fatal=True)
    return Frame(BROKEN, BaseCommand(), payload, error)

"""The log of commands in tunnels (proxyLogLevel, Apache's ParserProxyHandler).

Level 1 logs tunnels and commands, level 2 messages' bytes as well. Credentials are never logged.
"""

from __future__ import annotations

import logging

from google.protobuf.text_format import MessageToString

from geminga_protocol.frames import BROKEN, SUBMESSAGE, Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_proxy.addresses import Address
from geminga_proxy.relay import Tunnel
from geminga_runtime.logs import shown

access = logging.getLogger("geminga_proxy.access")

COMMAND_CHARACTERS_MAX = 500
PAYLOAD_BYTES_MAX = 1000
SECRET = frozenset({BaseCommand.CONNECT, BaseCommand.AUTH_CHALLENGE, BaseCommand.AUTH_RESPONSE})
"""Commands with credentials: only their names are logged."""


class FrameLog:
    """One direction of a tunnel. Holds at most one unfinished frame."""

    def __init__(self, name: str, level: int) -> None:
        self._name = name
        self._with_payload = level > 1
        self._reader = FrameReader()
        self._is_broken = False

    def feed(self, data: bytes) -> None:
        """Log the commands that are complete."""
        if self._is_broken:
            return
        try:
            frames = self._reader.feed(data)
        except FramingError as error:
            self._is_broken = True
            frames = error.frames
        for frame in frames:
            access.info("%s %s", self._name, described(frame, with_payload=self._with_payload))
        if self._is_broken:
            access.info("%s framing lost, no more commands are logged", self._name)


def logged_tunnel(name: str, target: Address | None, role: str | None, level: int) -> Tunnel:
    """A tunnel of the client at `name`; commands are logged from level 1 on."""
    if not level:
        return Tunnel()
    access.info("%s -> %s role=%s", name, target, shown(role or "nobody"))
    up, down = FrameLog(f"{name} -> {target}", level), FrameLog(f"{name} <- {target}", level)
    return Tunnel(up.feed, down.feed)


def described(frame: Frame, *, with_payload: bool) -> str:
    """A command in one line, without credentials."""
    kind = frame.type
    if kind == BROKEN or kind not in SUBMESSAGE:
        return f"unreadable command ({kind})"
    name = BaseCommand.Type.Name(BaseCommand.Type.ValueType(kind))
    if kind in SECRET:
        return name
    body = getattr(frame.command, SUBMESSAGE[kind])
    text = MessageToString(body, as_one_line=True)[:COMMAND_CHARACTERS_MAX]
    told = f"{name} {{{text}}}"
    if frame.payload is not None:
        told += f" {frame.payload.nbytes} bytes"
        if with_payload:
            told += f" {bytes(frame.payload[:PAYLOAD_BYTES_MAX])!r}"
    return told

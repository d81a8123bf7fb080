"""The PROXY protocol's header, versions 1 and 2: bytes in, the client's address out (spec PR-14;
HAProxy's proxy-protocol.txt, sections 2.1 and 2.2).

The header is optional, as in Apache's OptionalProxyProtocolDecoder: no frame and no TLS handshake
begins like it, so the first bytes decide.

    v1: PROXY TCP4|TCP6|UNKNOWN [source destination source-port destination-port] CR LF
    v2: signature (12) | version and command (1) | family (1) | length u16 | addresses | more
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError

V1_PREFIX = b"PROXY "
V1_BYTES_MAX = 107
"""Including CR LF, by the specification."""
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_HEAD_BYTES = 16
V2_REST_BYTES_MAX = 4096
"""Addresses and further fields; load balancers send a few hundred bytes at most."""
PEEK_BYTES = V2_HEAD_BYTES + V2_REST_BYTES_MAX
"""No header is longer."""

_LOCAL, _PROXY = 0x20, 0x21
_V2_ADDRESSES = {0x11: struct.Struct(">4s4sHH"), 0x21: struct.Struct(">16s16sHH")}
"""TCP over IPv4 and IPv6; addresses of other families are skipped."""


class ProxyHeaderError(RemoteProtocolError):
    """Begins like a header but is invalid; the connection must be closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, fatal=True)


class Endpoint(NamedTuple):
    """One side of a TCP connection; `host` is an IP address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ProxyHeaderReader:
    """Takes a stream's first bytes, in any chunks, and no byte after the header."""

    def __init__(self) -> None:
        self.done = False
        """Whether the header is complete, or there is none."""
        self.source: Endpoint | None = None
        """The client's address; None without a header, or if it names none."""
        self.unused = b""
        """Taken bytes that belong to no header; they precede the rest of the stream."""
        self._held = bytearray()

    def feed(self, data: bytes) -> int:
        """Returns the number of bytes taken. Raises ProxyHeaderError."""
        before = len(self._held)
        self._held += data[: PEEK_BYTES - before]
        held = bytes(self._held)
        if V1_PREFIX.startswith(held) or V2_SIGNATURE.startswith(held):
            return len(held) - before
        if held.startswith(V1_PREFIX):
            end = self._end_v1(held)
        elif held.startswith(V2_SIGNATURE):
            end = self._end_v2(held)
        else:
            self.done = True
            self.unused = held[:before]
            return 0
        del self._held[end:]
        return min(end, len(held)) - before

    def _end_v1(self, held: bytes) -> int:
        end = held.find(b"\r\n", 0, V1_BYTES_MAX)
        if end < 0:
            if len(held) >= V1_BYTES_MAX:
                raise ProxyHeaderError(f"no end of the PROXY line within {V1_BYTES_MAX} bytes")
            return len(held)
        self.source = _read_v1(held[:end])
        self.done = True
        return end + 2

    def _end_v2(self, held: bytes) -> int:
        if len(held) < V2_HEAD_BYTES:
            return len(held)
        command, family = held[12], held[13]
        size = int.from_bytes(held[14:16], "big")
        if command not in (_LOCAL, _PROXY):
            raise ProxyHeaderError(f"PROXY version and command 0x{command:02x}")
        if size > V2_REST_BYTES_MAX:
            raise ProxyHeaderError(f"a PROXY header of {size} bytes")
        end = V2_HEAD_BYTES + size
        if len(held) < end:
            return len(held)
        if command == _PROXY:
            self.source = _read_v2(family, held[V2_HEAD_BYTES:end])
        self.done = True
        return end


def _read_v1(line: bytes) -> Endpoint | None:
    parts = line.split(b" ")
    if parts[1] == b"UNKNOWN":
        return None
    versions = {b"TCP4": 4, b"TCP6": 6}
    if len(parts) != 6 or parts[1] not in versions:
        raise ProxyHeaderError("malformed PROXY line")
    source, _destination = (_ip(part, versions[parts[1]]) for part in parts[2:4])
    port, _port = (_port_of(part) for part in parts[4:6])
    return Endpoint(source, port)


def _ip(text: bytes, version: int) -> str:
    try:
        found = ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        raise ProxyHeaderError("PROXY line has an invalid address") from None
    # A zone ("%eth0") may contain any text.
    if found.version != version or b"%" in text:
        raise ProxyHeaderError("PROXY line has an address of another family")
    return str(found)


def _port_of(text: bytes) -> int:
    if not text.isdigit() or len(text) > 5 or int(text) > 65535:
        raise ProxyHeaderError("PROXY line has an invalid port")
    return int(text)


def _read_v2(family: int, rest: bytes) -> Endpoint | None:
    layout = _V2_ADDRESSES.get(family)
    if layout is None:
        return None
    if len(rest) < layout.size:
        raise ProxyHeaderError(f"PROXY header is too short for family 0x{family:02x}")
    source, _destination, port, _port = layout.unpack_from(rest)
    return Endpoint(str(ipaddress.ip_address(source)), port)


def proxy_header(source: Endpoint, destination: Endpoint) -> bytes:
    """A header of version 1, as Apache's proxy writes it; UNKNOWN if the two have different
    families. Raises LocalProtocolError for an invalid IP address.
    """
    try:
        versions = {ipaddress.ip_address(side.host).version for side in (source, destination)}
    except ValueError as error:
        raise LocalProtocolError(str(error)) from None
    if len(versions) > 1:
        return b"PROXY UNKNOWN\r\n"
    family = f"TCP{versions.pop()}"
    hosts = f"{source.host} {destination.host}"
    return f"PROXY {family} {hosts} {source.port} {destination.port}\r\n".encode("ascii")

"""What a bookie is called, and where it listens (Apache's BookieImpl.getBookieId and
getBookieAddress).
"""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from typing import NamedTuple

from geminga_runtime.settings import ConfigError

_ID = re.compile(r"[A-Za-z0-9:-_.\-]+")
"""As Apache's BookieId.validateBookieId: all ASCII characters from ':' to '_' too."""
_ID_RULE = "letters, digits, '.', '-', '_', ':', and others of ASCII between ':' and '_'"
_FORBIDDEN_IDS = ("readonly", ".", "..")
"""The first would be the parent of read-only bookies, the others are no names in ZooKeeper."""
_SIOCGIFADDR = 0x8915
_NAME_BYTES_MAX = 15


class Endpoint(NamedTuple):
    """A bookie's id in metadata, the address that clients are told, and the one to listen on."""

    bookie_id: str
    host: str
    port: int
    bind_host: str


def resolve(
    port: int,
    *,
    bookie_id: str = "",
    advertised_address: str = "",
    interface: str = "",
    allow_loopback: bool = False,
    by_name: bool = False,
) -> Endpoint:
    """As Apache's bookie finds them. Raises ConfigError."""
    bind_host = _interface_address(interface) if interface else "0.0.0.0"
    check_id("bookieId", bookie_id)
    check_id("advertisedAddress", advertised_address)
    host = advertised_address or _own_address(bind_host if interface else "", by_name)
    if not advertised_address and not allow_loopback and _is_loopback(host):
        raise ConfigError(
            f"allowLoopback: this machine's address is {host}, which other machines can't reach: "
            "set advertisedAddress, or allowLoopback for a cluster on one machine"
        )
    return Endpoint(bookie_id or f"{host}:{port}", host, port, bind_host)


def check_id(key: str, text: str) -> None:
    """What is a bookie's id, or the host in one; nothing is no error. Raises ConfigError."""
    if text and (not _ID.fullmatch(text) or text.lower() in _FORBIDDEN_IDS):
        raise ConfigError(f"{key}: {text!r} can't be in a bookie's id ({_ID_RULE})")


def _own_address(listening: str, by_name: bool) -> str:
    try:
        name = socket.getfqdn() if by_name else ""
        return name or listening or socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise ConfigError(
            f"advertisedAddress: must be set, since this machine's name has no address: {error}"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        return False


def _interface_address(interface: str) -> str:
    """Its IPv4 address. Raises ConfigError."""
    name = interface.encode()
    try:
        if len(name) > _NAME_BYTES_MAX:
            raise OSError("the name is too long")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name))
    except OSError as error:
        raise ConfigError(
            f"listeningInterface: {interface!r} has no IPv4 address: {error.strerror or error}"
        ) from None
    return socket.inet_ntoa(answer[20:24])

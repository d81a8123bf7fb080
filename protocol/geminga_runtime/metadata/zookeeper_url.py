"""URLs of metadata stores on ZooKeeper, in the form of Apache's `metadataStoreUrl`."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from geminga_runtime.metadata.paths import check_path
from geminga_runtime.settings import ConfigError

SCHEME = "zk:"
PORT = 2181
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:,/\s@?#%\\]+))(?::([0-9]{1,5}))?")
"""kazoo would cut a name at some of these characters, and connect to what is left."""


class ZooKeeperUrl(NamedTuple):
    """Servers of one ensemble, and the path that all nodes are beneath: empty, or "/a/b"."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    @property
    def connect_string(self) -> str:
        """The hosts as ZooKeeper's tools take them, without the chroot."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)


def parse_url(url: str) -> ZooKeeperUrl:
    """Parse `zk:host1:2181,host2/chroot`. Raises ConfigError."""
    if not url.startswith(SCHEME):
        raise ConfigError(f"metadata store {url!r} doesn't start with {SCHEME!r}")
    listed, slash, rest = url.removeprefix(SCHEME).partition("/")
    chroot = slash + rest if rest else ""
    try:
        check_path(chroot or "/")
    except ValueError:
        raise ConfigError(f"metadata store {url!r}: {chroot!r} is not a path") from None
    return ZooKeeperUrl(tuple(_parse_host(url, text) for text in listed.split(",")), chroot)


def _parse_host(url: str, text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    port = int(found[3] or PORT) if found else 0
    if found is None or not 0 < port < 65536 or not _is_ipv6(found[1]):
        raise ConfigError(f"metadata store {url!r}: {text!r} is not HOST or HOST:PORT")
    return found[2] or f"[{found[1]}]", port


def _is_ipv6(text: str | None) -> bool:
    """Also if there is none."""
    try:
        return text is None or bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False

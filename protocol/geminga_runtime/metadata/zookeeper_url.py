"""URLs of metadata stores on ZooKeeper, in the form of Apache's `metadataStoreUrl`, and of
BookKeeper's `metadataServiceUri`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from geminga_runtime.metadata.paths import check_path
from geminga_runtime.settings import ConfigError

SCHEME = "zk:"
SCHEMES = (SCHEME, "memory:", "rocksdb:", "etcd:", "oxia:")
PORT = 2181
LEDGERS = "/ledgers"
"""BookKeeper's root, the only one that is supported."""
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:,/\s@?#%\\]+))(?::([0-9]{1,5}))?")
"""kazoo would cut a name at some of these characters, and connect to what is left."""
_LEDGERS_URI = re.compile(
    r"zk(?:\+(?:hierarchical|longhierarchical|null))?://(.+)"
    r"|metadata-store:(?:zk:|(?!memory:|rocksdb:|etcd:|oxia:))(.+)"
)
"""The layout is taken from the node `/ledgers/LAYOUT`, whatever the scheme says."""


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
    if url.startswith(f"{SCHEME}//"):
        plain = f"{SCHEME}{url.removeprefix(SCHEME).lstrip('/')}"
        raise ConfigError(f"metadata store {url!r} has // too much: write {plain!r}")
    listed, slash, rest = url.removeprefix(SCHEME).partition("/")
    chroot = slash + rest if rest else ""
    try:
        check_path(chroot or "/")
    except ValueError:
        raise ConfigError(f"metadata store {url!r}: {chroot!r} is not a path") from None
    return ZooKeeperUrl(tuple(_parse_host(url, text) for text in listed.split(",")), chroot)


def with_scheme(url: str) -> str:
    """A URL without a scheme is on ZooKeeper (`MetadataStoreFactoryImpl`)."""
    return url if url.startswith(SCHEMES) else f"{SCHEME}{url}"


def uri_of_ledgers(text: str | None) -> str | None:
    """The `metadataServiceUri` of a store that is named as brokers name it, zk:HOSTS/PATH; other
    texts as they are.
    """
    if text is None or not text.startswith(SCHEME) or text.startswith("zk://"):
        return text
    return f"metadata-store:{text.rstrip('/')}{LEDGERS}"


def store_of_ledgers(key: str, uri: str) -> str:
    """URL of the store that has the ledgers' metadata at `/ledgers`, for a `metadataServiceUri`:
    `zk+hierarchical://host1:2181;host2:2181/chroot/ledgers` (BookKeeper's), or
    `metadata-store:zk:host1:2181,host2/chroot/ledgers` (Pulsar's). Raises ConfigError, which names
    the key.
    """
    found = _LEDGERS_URI.fullmatch(uri)
    if found is None:
        raise ConfigError(
            f"{key}: {uri!r} is neither zk+hierarchical://HOST:2181;HOST:2181/ledgers nor "
            "metadata-store:zk:HOST:2181,HOST:2181/ledgers"
        )
    rest = found[1] or found[2]
    hosts, slash, path = rest.partition("/")
    if not (slash + path).endswith(LEDGERS):
        whole = f"{uri.rstrip('/')}{LEDGERS}"
        raise ConfigError(
            f"{key}: {uri!r} doesn't end with {LEDGERS}, the only root that is read: "
            f"is it {whole!r}?"
        )
    return f"{SCHEME}{hosts.replace(';', ',')}{(slash + path).removesuffix(LEDGERS)}"


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

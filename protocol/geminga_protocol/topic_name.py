"""Topic names (spec PR-13; Apache's TopicName, NamespaceName, Codec).

    {persistent,non-persistent}://tenant/namespace/local        and with -partition-N at its end
    {persistent,non-persistent}://tenant/cluster/namespace/local   version 1
    tenant/namespace/local and local                            short: persistent, and in
    public/default

In the long forms a local name may contain slashes.
"""

from __future__ import annotations

import re
import sys

from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
PARTITION_SUFFIX = "-partition-"

NAMES_BYTES_MAX = 32 << 20
"""Memory of cached names (Apache's topicNameCacheMaxCapacity bounds their number)."""

CACHED_LENGTH_MAX = 1024
"""Longer names are not cached."""

PARSED_CHARS_MAX = 1 << 16
"""Longer names are refused unparsed. Apache has no limit; a broker's own (`limits`) is lower.
"""

_QUOTED_CHARS_MAX = 200
"""Characters of an invalid name in the error's text."""

_ENTITY = re.compile(r"[-=:.A-Za-z0-9_]+", re.ASCII)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9.\-*_]")
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# White space of java.lang.Character, without no-break spaces.
_BLANK = re.compile("[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")
_INT_MAX = (1 << 31) - 1


def url_encode(text: str) -> str:
    """As java.net.URLEncoder with UTF-8, for ledger paths and REST paths."""

    def escape(match: re.Match[str]) -> str:
        char = match.group()
        if char == " ":
            return "+"
        return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "replace"))

    return _TO_ESCAPE.sub(escape, text)


def url_decode(text: str) -> str:
    """Inverse of `url_encode`, as java.net.URLDecoder; invalid UTF-8 becomes U+FFFD."""
    if "%" not in text:
        return text.replace("+", " ")
    return _ESCAPED.sub(
        lambda match: bytes.fromhex(match.group().replace("%", "")).decode("utf-8", "replace"),
        text.replace("+", " "),
    )


class TopicName:
    """A topic's parsed name. Made by `parse`; immutable, equal and hashed by its full name."""

    __slots__ = (
        "_full",
        "cluster",
        "domain",
        "local_name",
        "namespace",
        "namespace_portion",
        "partition_index",
        "tenant",
    )

    def __init__(
        self, domain: str, tenant: str, cluster: str | None, namespace_portion: str, local_name: str
    ) -> None:
        self.domain = domain
        self.tenant = tenant
        self.cluster = cluster
        self.namespace_portion = namespace_portion
        self.local_name = local_name
        middle = namespace_portion if cluster is None else f"{cluster}/{namespace_portion}"
        self.namespace = f"{tenant}/{middle}"
        self._full = f"{domain}://{self.namespace}/{local_name}"
        self.partition_index = _partition_index(self._full)

    @staticmethod
    def parse(name: str) -> TopicName:
        """The name in any of its forms. Raises LocalProtocolError with code InvalidTopicName."""
        return _cache.get(name) or _parse_new(name)

    @staticmethod
    def from_persistence_naming_encoding(path: str) -> TopicName:
        """The topic whose managed ledger has that path. Raises LocalProtocolError."""
        parts = path.split("/")
        if len(parts) == 4:
            tenant, namespace, domain, local = parts
            return TopicName.parse(f"{domain}://{tenant}/{namespace}/{url_decode(local)}")
        if len(parts) == 5:
            tenant, cluster, namespace, domain, local = parts
            return TopicName.parse(f"{domain}://{tenant}/{cluster}/{namespace}/{url_decode(local)}")
        raise _invalid(f"no managed ledger path: {_quoted(path)}")

    @property
    def persistence_naming_encoding(self) -> str:
        """Path of the managed ledger beneath /managed-ledgers."""
        return f"{self.namespace}/{self.domain}/{url_encode(self.local_name)}"

    @property
    def is_persistent(self) -> bool:
        """Whether messages are stored."""
        return self.domain == PERSISTENT

    @property
    def is_partition(self) -> bool:
        """Whether this is one partition of a partitioned topic."""
        return self.partition_index >= 0

    @property
    def partitioned_base(self) -> TopicName:
        """The partitioned topic of a partition; any other topic itself."""
        if self.partition_index < 0:
            return self
        return TopicName.parse(self._full[: self._full.rindex(PARTITION_SUFFIX)])

    def partition(self, index: int) -> TopicName:
        """Partition `index`; a name that already has that suffix is returned unchanged
        (TopicName.getPartition).
        """
        if index < 0 or index == self.partition_index:
            return self
        return TopicName.parse(f"{self._full}{PARTITION_SUFFIX}{index}")

    @property
    def lookup_path(self) -> str:
        """domain/tenant/namespace/encoded local name: the tail of lookup and REST URLs."""
        return f"{self.domain}/{self.namespace}/{url_encode(self.local_name)}"

    @property
    def schema_name(self) -> str:
        """Id of the topic's schema: all partitions share one."""
        base = self.partitioned_base
        return f"{base.tenant}/{base.namespace_portion}/{url_encode(base.local_name)}"

    def __str__(self) -> str:
        return self._full

    def __repr__(self) -> str:
        return f"TopicName({self._full!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicName) and self._full == other._full

    def __hash__(self) -> int:
        return hash(self._full)


class _Cache:
    """Parsed names in two generations: a young one that takes half of the memory replaces the old
    one; a hit in the old one moves the name to the young one.
    """

    __slots__ = ("old", "size_bytes", "young")

    def __init__(self) -> None:
        self.young: dict[str, TopicName] = {}
        self.old: dict[str, TopicName] = {}
        self.size_bytes = 0

    def get(self, text: str) -> TopicName | None:
        name = self.young.get(text)
        if name is None and (name := self.old.get(text)) is not None:
            self.add(text, name)
        return name

    def add(self, text: str, name: TopicName) -> None:
        if self.size_bytes >= NAMES_BYTES_MAX // 2:
            self.old, self.young, self.size_bytes = self.young, {}, 0
        self.young[text] = name
        # Text, full name and parts: one wide character makes the whole string wide.
        self.size_bytes += 600 + 4 * sys.getsizeof(name._full)


_cache = _Cache()


def _parse_new(name: str) -> TopicName:
    if len(name) > PARSED_CHARS_MAX:
        raise _invalid(f"a name of {len(name)} characters is too long: {_quoted(name)}")
    parsed = _parse(name)
    if len(name) <= CACHED_LENGTH_MAX:
        _cache.add(name, parsed)
    return parsed


def _quoted(text: str) -> str:
    """The beginning of an invalid name, for an error's text of bounded length."""
    cut = len(text) > _QUOTED_CHARS_MAX
    return repr(text[:_QUOTED_CHARS_MAX] + "..." if cut else text)


def _parse(name: str) -> TopicName:
    domain, separator, rest = name.partition("://")
    if not separator:
        domain = PERSISTENT
        parts = [part for part in name.split("/") if part]
        if len(parts) == 3:
            rest = name
        elif len(parts) == 1:
            rest = f"public/default/{parts[0]}"
        else:
            raise _invalid(f"{_quoted(name)} is neither <tenant>/<namespace>/<topic> nor <topic>")
    domain = domain.lower()
    if domain not in (PERSISTENT, NON_PERSISTENT):
        raise _invalid(f"{_quoted(name)}: {_quoted(domain)} is no topic domain")
    pieces = rest.split("/", 3)
    cluster = None
    if len(pieces) == 3:
        tenant, namespace, local = pieces
    elif len(pieces) == 4:
        tenant, cluster, namespace, local = pieces
    else:
        raise _invalid(f"{_quoted(name)} lacks tenant, namespace or topic")
    for part in (tenant, namespace) if cluster is None else (tenant, cluster, namespace):
        if not _ENTITY.fullmatch(part):
            raise _invalid(
                f"{_quoted(name)}: {_quoted(part)} is no name of a tenant, cluster or namespace"
            )
    if _BLANK.fullmatch(local):
        raise _invalid(f"{_quoted(name)} has a blank local name")
    return TopicName(domain, tenant, cluster, namespace, local)


def _partition_index(full_name: str) -> int:
    _, separator, number = full_name.rpartition(PARTITION_SUFFIX)
    if not separator or not _PARTITION.fullmatch(number):
        return -1
    index = int(number)
    return index if index <= _INT_MAX else -1


def _invalid(message: str) -> LocalProtocolError:
    return LocalProtocolError(message, ServerError.InvalidTopicName)

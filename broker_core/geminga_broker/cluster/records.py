"""JSON records in the metadata store: the common part of clusters, tenants, namespaces and
partitioned topics.

Paths and JSON names are Apache's (`org.apache.pulsar.broker.resources`), so that an Apache broker
reads them. Unknown fields are kept unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from geminga_broker.limits import ENTITY_BYTES_MAX
from geminga_runtime.json_text import read_json
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore, NoNode
from geminga_runtime.metadata.cached import Remembering

RECORDS = "/admin"
"""Clusters, tenants, namespaces and policies. They are read with each lookup, check and load, and
change seldom: what was read is remembered until it changes.
"""

JsonObject = dict[str, object]

NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)
"""Valid names of tenants, clusters and namespaces (Apache's `NamedEntity`)."""


class ResourceError(Exception):
    """Base of the errors of resources. The store's errors are not mapped."""


class ResourceExists(ResourceError):
    """The name is taken."""


class ResourceMissing(ResourceError):
    """There is no such resource."""


class ResourceInUse(ResourceError):
    """The resource isn't empty."""


class ResourceChanged(ResourceError):
    """The resource isn't any more as it was."""


class BadName(ResourceError):
    """Not a valid name of a tenant, cluster or namespace."""


def is_name(text: str) -> bool:
    """Whether a tenant, cluster or namespace can have it as its name. Two dots would lead to
    another node of the store.
    """
    return len(text) <= ENTITY_BYTES_MAX and bool(NAME.fullmatch(text)) and text.strip(".") != ""


def check_name(name: str) -> str:
    """The name itself. Raises BadName, also if it is longer than ENTITY_BYTES_MAX."""
    if not is_name(name):
        raise BadName(name)
    return name


class Records:
    """JSON objects under one path of the store; a record's name is the rest of its path."""

    def __init__(self, store: MetadataStore, base_path: str) -> None:
        self._store = store
        self._remembering = store if isinstance(store, Remembering) else None
        self.base_path = base_path

    def path(self, name: str) -> str:
        """The path of a record."""
        return f"{self.base_path}/{name}"

    async def names(self, under: str = "") -> list[str]:
        """Names of the direct children of the base path, or of a record."""
        return list(await self._store.children(self.path(under) if under else self.base_path))

    async def get(self, name: str) -> JsonObject | None:
        """The record, or None; an empty parent node is no record."""
        value = await self.value(name)
        return None if value is None else decode(value)

    async def value(self, name: str) -> bytes | None:
        """The encoded record, or None."""
        node = await self._store.get(self.path(name))
        return node.value if node is not None and node.value else None

    def known(self, name: str) -> tuple[bytes | None] | None:
        """The encoded record, or None, if the store remembers that: no waiting. Else None alone."""
        if self._remembering is None:
            return None
        found = self._remembering.remembered(self.path(name))
        if found is None:
            return None
        return (found.node.value or None if found.node is not None else None,)

    async def exists(self, name: str) -> bool:
        """Whether the record exists."""
        return await self.get(name) is not None

    async def create(self, name: str, record: JsonObject) -> None:
        """Raises ResourceExists."""
        path, value = self.path(name), msgspec.json.encode(record)
        node = await self._store.get(path)
        if node is not None and node.value:
            raise ResourceExists(name)
        # An empty parent node, whose children were created first, becomes the record.
        expected = MUST_NOT_EXIST if node is None else node.stat.version
        try:
            await self._store.put(path, value, expected)
        except BadVersion:
            raise ResourceExists(name) from None

    async def update(self, name: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
        """Read, change, write; retried if it changed meanwhile. Raises ResourceMissing."""
        path = self.path(name)
        while True:
            node = await self._store.get(path)
            if node is None or not node.value:
                raise ResourceMissing(name)
            record = change(decode(node.value))
            try:
                await self._store.put(path, msgspec.json.encode(record), node.stat.version)
            except BadVersion:
                continue
            return record

    async def delete(self, name: str) -> None:
        """Raises ResourceMissing, and NotEmpty of the store."""
        try:
            await self._store.delete(self.path(name))
        except NoNode:
            raise ResourceMissing(name) from None

    async def delete_where(self, name: str, holds: Callable[[JsonObject], bool]) -> None:
        """Delete the record if this holds for it. Raises ResourceMissing, ResourceChanged."""
        path = self.path(name)
        while True:
            node = await self._store.get(path)
            if node is None or not node.value:
                raise ResourceMissing(name)
            if not holds(decode(node.value)):
                raise ResourceChanged(name)
            try:
                await self._store.delete(path, node.stat.version)
            except BadVersion:
                continue
            except NoNode:
                raise ResourceMissing(name) from None
            return


def decode(value: bytes) -> JsonObject:
    """A record. Raises BadJson."""
    return read_json(value, dict[str, object])

"""Policies of topics as older versions of this broker kept them: in the metadata store, at
`/admin/topic-policies/{tenant}/{namespace}/{domain}/{topic}` (decision 7).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import trio

from geminga_broker.cluster.records import JsonObject, decode
from geminga_protocol.errors import ProtocolError
from geminga_protocol.topic_name import TopicName, url_decode
from geminga_runtime.json_text import BadJson
from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    MetadataError,
    MetadataStore,
    NoNode,
    NotEmpty,
)
from geminga_runtime.metadata.own_nodes import delete_own, is_own

BASE = "/admin/topic-policies"
CLAIMS = "/topic-policies-takeover"
_WAIT_S = 0.2


class OlderRecord(NamedTuple):
    """A record of an older version, and where it stands."""

    path: str
    version: int
    topic: TopicName | None
    """None if nothing of it can be used."""
    record: JsonObject


class OlderRecords:
    """The records that have not been taken over yet. All methods raise MetadataError."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def exist(self, namespace: str) -> bool:
        """Whether the namespace has any, or folders of such."""
        return bool(await self._store.children(f"{BASE}/{namespace}"))

    async def of(self, namespace: str) -> list[OlderRecord]:
        """All of a namespace."""
        found: list[OlderRecord] = []
        for domain in await self._store.children(f"{BASE}/{namespace}"):
            for name in await self._store.children(f"{BASE}/{namespace}/{domain}"):
                path = f"{BASE}/{namespace}/{domain}/{name}"
                if (node := await self._store.get(path)) is None:
                    continue
                topic, record = None, None
                with suppress(ProtocolError, BadJson):
                    topic = TopicName.parse(f"{domain}://{namespace}/{url_decode(name)}")
                    record = decode(node.value) if node.value else None
                found.append(OlderRecord(path, node.stat.version, topic, record or {}))
        return found

    async def forget(self, namespace: str, taken: list[OlderRecord]) -> None:
        """Delete records; one that was changed since stays."""
        for each in taken:
            with suppress(NoNode, BadVersion):
                await self._store.delete(each.path, each.version)
        folder = f"{BASE}/{namespace}"
        for name in await self._store.children(folder):
            with suppress(NoNode, NotEmpty):
                await self._store.delete(f"{folder}/{name}")
        with suppress(NoNode, NotEmpty):
            await self._store.delete(folder)

    @asynccontextmanager
    async def claimed(self, namespace: str) -> AsyncIterator[None]:
        """In the block no other broker takes over the namespace's records, as long as the session
        lasts.
        """
        path = f"{CLAIMS}/{namespace}"
        while True:
            try:
                epoch = self._store.session.epoch
                await self._store.put(path, b"", MUST_NOT_EXIST, epoch=epoch)
                break
            except BadVersion:
                if await is_own(self._store, path):
                    break  # of an attempt whose end was not heard of
                await trio.sleep(_WAIT_S)  # another broker has it
        try:
            yield
        finally:
            with trio.move_on_after(1, shield=True), suppress(MetadataError):
                await delete_own(self._store, path)

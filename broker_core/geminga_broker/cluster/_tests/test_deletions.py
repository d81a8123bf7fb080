"""Notes of deletions (decision 44), where several are at the same record."""

from __future__ import annotations

from collections.abc import Callable

from geminga_broker.cluster.deletions import DELETIONS, Deletions
from geminga_broker.cluster.records import JsonObject, Records
from geminga_protocol.topic_name import url_encode
from geminga_runtime.metadata.memory import MemoryMetadataStore

NAME = "tenant/ns"


class Hurried(Records):
    """Somebody looks at the note in front of the mark, and removes it."""

    async def update(self, name: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
        if await self._store.exists(path := f"{DELETIONS}/{url_encode(NAME)}"):
            await self._store.delete(path)
        return await super().update(name, change)


async def test_a_note_that_is_removed_in_front_of_the_mark_comes_back() -> None:
    store = MemoryMetadataStore()
    deletions, records = Deletions(store), Hurried(store, "/admin/policies")
    await records.create(NAME, {})
    async with deletions.marked(records, NAME, NAME, force=True):
        (noted,) = await deletions.noted()
        assert noted.note.name == NAME
        assert deletions.is_running(noted.note)
    assert await deletions.noted() == []


async def test_the_end_of_one_leaves_the_note_of_another() -> None:
    store = MemoryMetadataStore()
    records = Records(store, "/admin/policies")
    await records.create(NAME, {})
    brokers = [Deletions(store), Deletions(store)]
    for each, broker_id in zip(brokers, ("one", "two"), strict=True):
        each.broker_id = broker_id
    first, second = (each.marked(records, NAME, NAME, force=True) for each in brokers)
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert [each.note.broker for each in await brokers[0].noted()] == ["two"]
    await second.__aexit__(None, None, None)
    assert await brokers[0].noted() == []

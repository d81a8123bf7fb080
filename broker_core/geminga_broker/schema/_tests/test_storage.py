"""Versions in ledgers: written bytes, races, and crashes at every step."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import DigestType
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log._tests.test_faults import Fault, Faults, FaultyBookie, FaultyStore
from geminga_broker.log.options import LedgerDurability
from geminga_broker.schema import registry as registry_module
from geminga_broker.schema.model import (
    SchemaData,
    SchemaStorageFailed,
    Strategy,
    VersionedSchema,
)
from geminga_broker.schema.registry import SchemaRegistry, find
from geminga_broker.schema.storage import SchemaStorage
from geminga_protocol.bookkeeper.digest import Digest
from geminga_protocol.pb.schema_storage_pb2 import (
    IndexEntry,
    PositionInfo,
    SchemaEntry,
    SchemaInfo,
    SchemaLocator,
)
from geminga_protocol.schema_type import SchemaType
from geminga_runtime.metadata.memory import MemoryMetadataStore

ID = "public/default/t"


class World:
    """A bookie and a metadata store on which registries come and go."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.bookie = FaultyBookie(faults) if faults else MemoryBookie()
        self.store = FaultyStore(faults) if faults else MemoryMetadataStore()
        self.client = BookkeeperClient(KnownBookies([self.bookie]), self.store)

    def registry(self) -> SchemaRegistry:
        return SchemaRegistry(SchemaStorage(self.store, self.client, LedgerDurability()))

    async def ledgers(self) -> list[int]:
        return [ledger_id async for ledger_id in self.client.ledgers()]


def json_schema(*fields: str) -> SchemaData:
    parts = ",".join(f'{{"name":"{name}","type":"int","default":0}}' for name in fields)
    text = f'{{"type":"record","name":"R","fields":[{parts}]}}'
    return SchemaData(SchemaType.JSON, text.encode(), {"a": "b"}, "me")


async def test_versions_have_apaches_paths() -> None:
    world = World()
    registry = world.registry()
    assert await registry.register(ID, json_schema("x"), Strategy.FULL) == 0
    assert await registry.register(ID, json_schema("x", "y"), Strategy.FULL) == 1
    node = await world.store.get(f"/schemas/{ID}")
    assert node is not None
    locator = SchemaLocator.FromString(node.value)
    assert [entry.version for entry in locator.index] == [0, 1]
    assert locator.info == locator.index[1]
    place = locator.info.position
    metadata = await world.client.metadata(place.ledgerId)
    assert metadata.custom_metadata == {
        "application": b"pulsar",
        "component": b"schema",
        "pulsar/schemaId": ID.encode(),
    }
    assert (metadata.password, metadata.digest_type) == (b"", DigestType.CRC32C)
    assert metadata.last_entry_id == place.entryId == 0
    reader = await world.client.open(place.ledgerId, b"", recover=False)
    [view] = await reader.read(0, 0)
    entry = SchemaEntry.FromString(bytes(view))
    assert list(entry.index) == [locator.index[0]]
    info = SchemaInfo.FromString(entry.schema_data)
    assert (info.schema_id, info.user, info.type) == (ID, "me", SchemaInfo.JSON)
    assert info.schema == json_schema("x", "y").data
    assert [(pair.key, pair.value) for pair in info.props] == [("a", "b")]


def test_bytes_equal_apaches_classes() -> None:
    """Golden bytes of `SchemaRegistryFormat` and `SchemaStorageFormat` of Pulsar 4.0.7."""
    info = bytes.fromhex(
        "0a107075626c69632f64656661756c742f7412026d651805220522696e74222880d095ffbc3130003a060a016b"
        "120176"
    )
    read = SchemaInfo.FromString(info)
    assert (read.schema_id, read.user, read.type) == ("public/default/t", "me", SchemaInfo.AVRO)
    assert (read.schema, read.timestamp, read.deleted) == (b'"int"', 1_700_000_000_000, False)
    assert [(pair.key, pair.value) for pair in read.props] == [("k", "v")]
    nowhere = PositionInfo(ledgerId=-1, entryId=-1)
    index = [IndexEntry(version=0, position=nowhere, hash=b"\1\2")]
    entry = SchemaEntry(schema_data=info, index=index)
    assert entry.SerializeToString().hex() == (
        f"1230{info.hex()}2a1e0800121608ffffffffffffffffff0110ffffffffffffffffff011a020102"
    )
    place = IndexEntry(version=0, position=PositionInfo(ledgerId=7, entryId=0), hash=b"\1\2")
    locator = SchemaLocator(info=place, index=[place])
    golden = "0a0c08001204080710001a020102120c08001204080710001a020102"
    assert locator.SerializeToString().hex() == golden
    assert read.SerializeToString() == info


async def test_versions_survive_the_registry_and_known_schemas_keep_theirs() -> None:
    world = World()
    await world.registry().register(ID, json_schema("x"), Strategy.FULL)
    registry = world.registry()
    assert await registry.register(ID, json_schema("x"), Strategy.ALWAYS_INCOMPATIBLE) == 0
    spaced = SchemaData(SchemaType.JSON, json_schema("x").data.replace(b",", b" , "))
    assert await registry.register(ID, spaced, Strategy.ALWAYS_INCOMPATIBLE) == 0
    latest = await registry.latest(ID)
    assert latest is not None
    assert latest.schema.props == {"a": "b"}
    assert await registry.get(ID, 1) is None


async def test_deleted_versions_are_hidden_and_numbers_continue() -> None:
    world = World()
    registry = world.registry()
    await registry.register(ID, json_schema("x"), Strategy.FULL)
    assert await registry.mark_deleted(ID, "me") == 1
    assert await registry.latest(ID) is None
    assert await registry.get(ID, 0) is None
    string = SchemaData(SchemaType.STRING, b"")
    assert await registry.register(ID, string, Strategy.ALWAYS_INCOMPATIBLE) == 2
    assert [each.number for each in await registry.versions(ID)] == [2]


async def test_permanent_deletion_leaves_nothing() -> None:
    world = World()
    registry = world.registry()
    await registry.register(ID, json_schema("x"), Strategy.FULL)
    await registry.mark_deleted(ID, "")
    assert await world.client.unnamed.old(1 << 62) == []
    assert await registry.delete(ID)
    assert not await registry.delete(ID)
    assert await world.ledgers() == []
    assert await world.store.get(f"/schemas/{ID}") is None
    assert await registry.register(ID, json_schema("z"), Strategy.FULL) == 0


async def test_concurrent_schemas_get_versions_and_equal_ones_share() -> None:
    world = World()
    numbers: dict[int, int] = {}

    async def register(n: int) -> None:
        schema = json_schema(f"f{n % 4}")
        numbers[n] = await world.registry().register(ID, schema, Strategy.ALWAYS_COMPATIBLE)

    async with trio.open_nursery() as nursery:
        for n in range(8):
            nursery.start_soon(register, n)
    assert sorted(set(numbers.values())) == [0, 1, 2, 3]
    assert all(numbers[n] == numbers[n + 4] for n in range(4))
    assert len(await world.ledgers()) == 4
    assert await world.store.children("/geminga/schema-deletions") == []


async def test_a_lost_ledger_loses_its_version_only() -> None:
    world = World()
    registry = world.registry()
    await registry.register(ID, json_schema("x"), Strategy.FULL)
    await registry.register(ID, json_schema("x", "y"), Strategy.FULL)
    await world.client.delete((await world.ledgers())[0])
    again = world.registry()
    assert [each.number for each in await again.versions(ID)] == [1]
    new = json_schema("x", "y", "z")
    assert await again.register(ID, new, Strategy.FULL_TRANSITIVE) == 2
    assert [each.number for each in await world.registry().versions(ID)] == [1, 2]


@pytest.mark.parametrize("undecodable", [False, True])
async def test_a_damaged_version_is_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, undecodable: bool
) -> None:
    """The others are listed, and new ones registered; a damaged end is still an end."""
    world = World()
    registry = world.registry()
    await registry.register(ID, json_schema("a"), Strategy.FULL)
    await registry.mark_deleted(ID, "")
    await registry.register(ID, json_schema("x"), Strategy.FULL)
    await registry.register(ID, json_schema("x", "y"), Strategy.FULL)
    for number in (1, 3):
        [packet] = world.bookie._ledgers[(await world.ledgers())[number]].entries.values()
        damaged = packet[:-1] + bytes([packet[-1] ^ 1])
        world.bookie._ledgers[(await world.ledgers())[number]].entries[0] = damaged
    if undecodable:

        def noise(_self: Digest, _ledger_id: int, _first: int, packets: list[bytes]) -> list[bytes]:
            return [b"\xff" * 9 for _ in packets]

        monkeypatch.setattr(Digest, "payloads", noise)
        assert await world.registry().versions(ID) == []
        monkeypatch.undo()
    again = world.registry()
    assert [each.number for each in await again.versions(ID)] == [2]
    assert "version 3 is damaged" in caplog.text
    new = json_schema("x", "y", "z")
    assert await again.register(ID, new, Strategy.FULL_TRANSITIVE) == 4
    assert [each.number for each in await world.registry().versions(ID)] == [2, 4]


async def script(registry: SchemaRegistry, done: list[int]) -> None:
    """The interrupted script: two versions, an end, all deleted, another one."""

    async def step(n: int) -> None:
        try:
            if n in (0, 1, 4):
                await registry.register(ID, json_schema(*"xyz"[: n + 1]), Strategy.FULL)
            elif n == 2:
                await registry.mark_deleted(ID, "")
            else:
                await registry.delete(ID)
        except SchemaStorageFailed:
            return
        done.append(n)

    for n in range(5):
        await step(n)


async def life(fault: Fault | None, at: int) -> int:
    """One life with a fault; answers the steps that it had."""
    faults = Faults(fault, at)
    world = World(faults)
    done: list[int] = []
    with trio.CancelScope() as scope:
        faults.crash = scope.cancel
        await script(world.registry(), done)
    steps = faults.steps
    faults.fault = None
    if isinstance(world.bookie, FaultyBookie):
        world.bookie.dead = False
    registry = world.registry()
    before = await registry.versions(ID)
    await registry.storage.collect(older_than_s=-1)
    assert await registry.versions(ID) == before
    locator = await registry.storage.locate(ID)
    named = [entry.position.ledgerId for entry in locator.value.index] if locator else []
    assert sorted(await world.ledgers()) == sorted(named), "a ledger leaked or is missing"
    assert await world.store.children("/geminga/schema-deletions") == []
    assert await world.client.unnamed.old(1 << 62) == []
    if 4 in done:
        assert [each.schema.data for each in before] == [json_schema(*"xyz").data]
    await registry.register(ID, json_schema("x", "new"), Strategy.ALWAYS_COMPATIBLE)
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(Fault))
async def test_a_fault_at_any_step_leaves_the_old_or_the_new_state(
    fault: Fault, autojump_clock: MockClock
) -> None:
    steps = await life(None, 0)
    assert steps > 30
    for at in range(1, steps + 1):
        await life(fault, at)


async def test_unlisted_ledgers_of_a_living_broker_are_not_deleted() -> None:
    world = World()
    storage = world.registry().storage
    writer = await world.client.create(storage._options(ID), unnamed=True)
    assert await storage.collect() == 0
    assert await world.ledgers() == [writer.ledger_id]
    assert await storage.collect(older_than_s=-1) == 1
    assert await world.ledgers() == []


def test_a_known_definition_is_found_without_parsing_any(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [VersionedSchema(n, json_schema(f"f{n}")) for n in range(20)]
    spaced = SchemaData(SchemaType.JSON, versions[7].schema.data.replace(b":", b" : "))
    assert find(versions, spaced) == 7, "by meaning"
    assert find(versions, json_schema("other")) is None
    assert find(versions, SchemaData(SchemaType.AVRO, versions[7].schema.data)) is None
    monkeypatch.setattr(registry_module, "parse_avro", None)
    assert find(versions, versions[19].schema) == 19


async def test_a_locator_that_is_not_valid_stops_no_other_collection() -> None:
    world = World()
    storage = world.registry().storage
    bad, other = "public/default/bad", "public/default/other"
    ids = [
        (await world.client.create(storage._options(each), unnamed=True)).ledger_id
        for each in (bad, other)
    ]
    await world.store.put(f"/schemas/{bad}", b"\xff not valid")
    for each, listed in ((bad, ids[0]), (other, 12345)):
        record = f"{each}\n{listed}".encode()
        await world.store.put("/geminga/schema-deletions/d-", record, sequential=True)
    assert await storage.collect(older_than_s=-1) == 2
    assert await world.ledgers() == ids[:1]
    assert len(await world.store.children("/geminga/schema-deletions")) == 1

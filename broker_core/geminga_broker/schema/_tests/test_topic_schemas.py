"""Producers and consumers with schemas, at the wire, and policies about them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from geminga_broker._tests.wire import SubType, Type, WireBroker, WireClient, open_broker
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import SchemaConfig
from geminga_broker.schema.model import Strategy
from geminga_broker.schema.policies import schema_policies
from geminga_protocol.commands import consuming, producing, schemas
from geminga_protocol.commands.consuming import SubscribeOptions
from geminga_protocol.pb.pulsar_api_pb2 import Schema, ServerError
from geminga_protocol.topic_name import TopicName

TOPIC = "persistent://public/default/a"
NAME = TopicName.parse(TOPIC)
STRING = Schema(name="s", schema_data=b"", type=Schema.Type.String)
AUTO = Schema(name="", schema_data=b"", type=Schema.Type.AutoConsume)


def avro(*fields: str) -> Schema:
    found = [{"name": name, "type": "int"} for name in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": found})
    return Schema(name="R", schema_data=text.encode(), type=Schema.Type.Avro)


class Users:
    """Clients of one topic; each attempt returns "" or the text of its refusal."""

    def __init__(self, broker: WireBroker, client: WireClient) -> None:
        self.service = broker.service
        self._client = client
        self._ids = 0

    async def produce(self, schema: Schema | None = None, topic: str = TOPIC) -> str:
        self._ids += 1
        request = producing.producer(topic, self._ids, 1000 + self._ids, schema=schema)
        return await self._ask(request, Type.PRODUCER_SUCCESS)

    async def consume(self, schema: Schema | None = None, topic: str = TOPIC) -> str:
        self._ids += 1
        request = consuming.subscribe(
            topic,
            f"s{self._ids}",
            SubType.Shared,
            self._ids,
            2000 + self._ids,
            SubscribeOptions(schema=schema),
        )
        return await self._ask(request, Type.SUCCESS)

    async def _ask(self, request: bytes, success: int) -> str:
        await self._client.send(request)
        frame = await self._client.next()
        assert frame is not None
        if frame.type == success:
            return ""
        assert frame.type == Type.ERROR
        assert frame.command.error.error == ServerError.IncompatibleSchema
        return str(frame.command.error.message)

    async def set_namespace(self, **fields: str | bool) -> None:
        await self.service.namespaces.tenants.update("public/default", lambda old: old | fields)

    async def versions(self) -> list[int]:
        found = await self.service.schemas.registry.versions(NAME.schema_name)
        return [each.number for each in found]


@asynccontextmanager
async def open_users() -> AsyncIterator[Users]:
    """A broker, and clients of it."""
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        yield Users(broker, client)


async def test_producers_register_compatible_schemas() -> None:
    async with open_users() as users:
        await users.set_namespace(schema_compatibility_strategy="BACKWARD")
        assert await users.produce(avro("a", "b")) == ""
        assert await users.produce(avro("a")) == ""
        assert "Unable to read schema" in await users.produce(avro("a", "b", "c"))
        assert "exists schema type AVRO" in await users.produce(STRING)
        assert await users.produce(avro("a", "b")) == ""
        assert await users.versions() == [0, 1]


async def test_the_first_consumer_of_an_empty_topic_registers_its_schema() -> None:
    async with open_users() as users:
        assert await users.consume(AUTO) == ""
        assert await users.versions() == []
        assert await users.consume(avro("a")) == ""
        assert await users.versions() == [0]
        assert "exists schema type AVRO" in await users.consume(STRING)


@pytest.mark.parametrize("user", ["producer", "consumer"])
async def test_a_topic_in_use_without_schema_stays_so(user: str) -> None:
    async with open_users() as users:
        assert await (users.produce() if user == "producer" else users.consume()) == ""
        text = "Failed to add schema to an active topic with empty(BYTES) schema: new schema type "
        assert await users.consume(avro("a")) == f"{text}AVRO"
        assert await users.versions() == []


async def test_consumers_need_only_a_compatible_schema() -> None:
    async with open_users() as users:
        assert await users.produce(avro("a", "b")) == ""
        assert await users.consume(avro("a")) == ""
        assert "Unable to read" in await users.consume(avro("a", "c"))
        assert await users.versions() == [0]
        await users.set_namespace(schema_compatibility_strategy="ALWAYS_COMPATIBLE")
        assert await users.consume(STRING) == ""


async def test_without_auto_update_only_known_schemas_are_accepted() -> None:
    async with open_users() as users:
        assert await users.produce(avro("a")) == ""
        await users.set_namespace(is_allow_auto_update_schema=False)
        assert await users.produce(avro("a")) == ""
        text = "Schema not found and schema auto updating is disabled."
        assert await users.produce(avro("b")) == text
        assert await users.produce(STRING, f"{TOPIC}2") == text


async def test_enforcement_refuses_producers_without_schema() -> None:
    async with open_users() as users:
        await users.set_namespace(schema_validation_enforced=True)
        assert await users.produce(None, f"{TOPIC}2") == ""
        assert await users.produce(avro("a")) == ""
        assert "SchemaValidationEnforced is enabled" in await users.produce()
        await users.set_namespace(schema_validation_enforced=False)
        assert await users.produce() == ""


async def test_invalid_schemas_are_refused_at_the_wire() -> None:
    async with open_users() as users:
        bad = Schema(name="x", schema_data=b"{", type=Schema.Type.Avro)
        text = "Invalid schema definition data for AVRO schema"
        assert await users.produce(bad) == text
        assert await users.consume(bad) == text
        assert "client-side" in await users.produce(AUTO)
        assert await users.versions() == []


async def test_two_first_producers_at_once() -> None:
    async with open_broker() as broker:
        answers: list[str] = []

        async def come(schema: Schema) -> None:
            client = broker.client()
            await client.connect()
            answers.append(await Users(broker, client).produce(schema))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come, avro("a"))
            nursery.start_soon(come, STRING)
        assert sorted(bool(answer) for answer in answers) == [False, True]
        assert "Incompatible schema: exists schema type" in "".join(answers)
        registry = broker.service.schemas.registry
        assert len(await registry.versions(NAME.schema_name)) == 1
        client = broker.service.schemas.registry.storage._ledgers
        owners = [
            (await client.metadata(ledger_id)).custom_metadata.get("pulsar/schemaId")
            async for ledger_id in client.ledgers()
        ]
        assert owners.count(NAME.schema_name.encode()) == 1


async def test_partitions_share_and_deleting_the_topic_forgets() -> None:
    async with open_users() as users:
        assert await users.produce(avro("a"), f"{TOPIC}-partition-0") == ""
        assert "exists schema type" in await users.produce(STRING, f"{TOPIC}-partition-1")
        assert await users.produce() == ""
        await users.service.topics.delete(NAME, force=True)
        assert await users.versions() == []


async def test_versions_by_the_wire() -> None:
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        kind = Type.GET_OR_CREATE_SCHEMA_RESPONSE
        answer = await client.ask(schemas.get_or_create_schema(1, TOPIC, STRING), kind)
        assert answer.getOrCreateSchemaResponse.error_code == ServerError.TopicNotFound
        await client.open_producer(TOPIC)
        answer = await client.ask(schemas.get_or_create_schema(2, TOPIC, STRING), kind)
        assert answer.getOrCreateSchemaResponse.schema_version == bytes(8)
        for version, code in ((bytes(8), 0), (bytes(7) + b"\1", 1), (b"x", 1)):
            request = schemas.get_schema(3, TOPIC, schema_version=version)
            answer = await client.ask(request, Type.GET_SCHEMA_RESPONSE)
            found = answer.getSchemaResponse
            assert (found.error_code == ServerError.TopicNotFound) == bool(code)


CONFIG = SchemaConfig()


@pytest.mark.parametrize(
    ("topic", "namespace", "config", "strategy"),
    [
        ({}, None, CONFIG, Strategy.FULL),
        ({}, {"schema_compatibility_strategy": "UNDEFINED"}, CONFIG, Strategy.FULL),
        ({}, {}, SchemaConfig("BACKWARD"), Strategy.BACKWARD),
        ({}, {}, SchemaConfig("UNDEFINED"), Strategy.FULL),
        ({}, {"schema_compatibility_strategy": "FORWARD"}, CONFIG, Strategy.FORWARD),
        (
            {},
            {"schema_auto_update_compatibility_strategy": "AutoUpdateDisabled"},
            CONFIG,
            Strategy.ALWAYS_INCOMPATIBLE,
        ),
        (
            {"schemaCompatibilityStrategy": "BACKWARD"},
            {"schema_compatibility_strategy": "FORWARD"},
            CONFIG,
            Strategy.BACKWARD,
        ),
    ],
)
def test_the_nearest_level_sets_the_strategy(
    topic: JsonObject, namespace: JsonObject | None, config: SchemaConfig, strategy: Strategy
) -> None:
    assert schema_policies(topic, namespace, config).strategy is strategy


def test_enforcement_and_auto_update_by_level() -> None:
    strict = replace(CONFIG, validation_enforced=True)
    assert schema_policies({"schemaValidationEnforced": False}, {}, strict).enforced
    space: JsonObject = {"schema_validation_enforced": True, "is_allow_auto_update_schema": False}
    assert schema_policies({}, space, CONFIG).enforced
    assert not schema_policies({"schemaValidationEnforced": False}, space, CONFIG).enforced
    assert not schema_policies({}, space, CONFIG).auto_update
    assert not schema_policies({}, {}, replace(CONFIG, allow_auto_update=False)).auto_update

"""A long schema, asked for many times by a client that doesn't read (spec PR-16)."""

from __future__ import annotations

import json

import trio

from geminga_broker._tests.wire import open_broker
from geminga_broker.schema.model import SchemaData
from geminga_protocol.commands import schemas
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName
from geminga_runtime.stream import WRITE_HIGH_BYTES

TOPIC = "persistent://public/default/long"
TIMES = 100
Type = BaseCommand.Type


async def test_one_answer_waits_at_a_time_and_only_for_a_client_that_reads() -> None:
    fields = [{"name": f"f{number}", "type": "string"} for number in range(5000)]
    definition = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    async with open_broker() as broker:
        topic = TopicName.parse(TOPIC)
        await broker.service.topics.get(topic, create=True)
        schema = SchemaData(SchemaType.JSON, definition)
        await broker.service.schemas.admit_producer(topic, schema)
        client = broker.client(sockets=True)
        await client.connect()
        [session] = broker.service.connections.sessions
        await client.send(*(schemas.get_schema(number, TOPIC) for number in range(TIMES)))
        highest = 0
        for _ in range(100):
            await trio.testing.wait_all_tasks_blocked()
            highest = max(highest, session.stream.pending_bytes)
            await trio.lowlevel.checkpoint()
        assert 0 < highest < WRITE_HIGH_BYTES + len(definition) + 20_000
        answers = [await client.expect(Type.GET_SCHEMA_RESPONSE) for _ in range(TIMES)]
        found = {each.command.getSchemaResponse.request_id for each in answers}
        assert found == set(range(TIMES))
        assert answers[-1].command.getSchemaResponse.schema.schema_data == definition
        await client.stream.aclose()

"""What goes with one partition of a topic, and what with all of them."""

from __future__ import annotations

from geminga_broker._tests.wire import open_broker
from geminga_broker.schema.model import SchemaData, Strategy
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName

TOPIC = TopicName.parse("persistent://public/default/parted")


async def test_a_partition_takes_neither_policies_nor_schemas_of_its_topic() -> None:
    async with open_broker() as broker:
        service = broker.service
        await service.topics._catalog.create_partitioned(TOPIC, 2)
        first = TopicName.parse(f"{TOPIC}-partition-0")
        await service.topics.get(first, create=True)
        await service.policies.store.update(TOPIC, lambda old: old | {"messageTTLInSeconds": 5})
        schema = SchemaData(SchemaType.STRING, b"")
        registry = service.schemas.registry
        await registry.register(TOPIC.schema_name, schema, Strategy.FULL)
        await service.topics.delete(first, force=True)
        assert (await service.policies.store.get(TOPIC))["messageTTLInSeconds"] == 5
        assert await registry.latest(TOPIC.schema_name) is not None
        assert not await service.topics.exists(first)

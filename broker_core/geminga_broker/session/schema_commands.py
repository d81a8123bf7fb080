"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, and schemas in other commands."""

from __future__ import annotations

from geminga_broker.errors import BrokerError
from geminga_broker.schema.model import SchemaData
from geminga_broker.session.authorization import authorize
from geminga_broker.session.session import Session
from geminga_protocol.commands import schemas
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    Schema,
    ServerError,
)
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName


def schema_of(session: Session, wire: Schema | None) -> SchemaData | None:
    """The schema in a client's command. Raises InvalidSchemaData."""
    if wire is None:
        return None
    return SchemaData.from_wire(wire, user=session.principal or "")


async def get_schema(session: Session, command: CommandGetSchema) -> None:
    """A version of the topic's schema, or the latest; TopicNotFound if there is none.

    For a connection one at a time, and only while it reads: definitions can be long.
    """
    async with session.long_answer:
        await session.backpressure.until_writable()
        # Grants may have been revoked during the wait.
        await authorize(session, BaseCommand.Type.GET_SCHEMA, command)
        await _get_schema(session, command)


async def _get_schema(session: Session, command: CommandGetSchema) -> None:
    topic = TopicName.parse(command.topic)
    found = await session.service.schemas.get(topic, command.schema_version)
    if found is None:
        text = f"Topic not found or no-schema {topic.schema_name}"
        raise BrokerError(ServerError.TopicNotFound, text)
    schema = found.schema.to_wire(topic.schema_name)
    session.write(schemas.get_schema_response(command.request_id, schema, found.version))


async def get_or_create_schema(session: Session, command: CommandGetOrCreateSchema) -> None:
    """Register a schema, and respond with its version. Raises BrokerError TopicNotFound."""
    topic = TopicName.parse(command.topic)
    await session.service.topics.get(topic, create=False)
    schema = schema_of(session, command.schema)
    if schema is not None and schema.type is SchemaType.NONE:
        schema = None  # as Apache's broker, which accepts such a schema from producers
    version = await session.service.schemas.admit_producer(topic, schema)
    session.write(schemas.get_or_create_schema_response(command.request_id, version))

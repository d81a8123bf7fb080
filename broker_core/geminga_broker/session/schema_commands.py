"""GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from geminga_broker.errors import BrokerError
from geminga_broker.session.session import Session
from geminga_protocol.commands import schemas
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    ServerError,
)
from geminga_protocol.topic_name import TopicName


async def get_schema(session: Session, command: CommandGetSchema) -> None:
    """A version of the topic's schema, or the latest; TopicNotFound if there is none."""
    topic = TopicName.parse(command.topic)
    found = await session.service.schemas.get(topic, command.schema_version)
    if found is None:
        text = "Topic not found or no-schema"
        raise BrokerError(ServerError.TopicNotFound, text)
    session.write(schemas.get_schema_response(command.request_id, found.schema, found.version))


async def get_or_create_schema(session: Session, command: CommandGetOrCreateSchema) -> None:
    """Register a schema; answers the version that it has."""
    topic = TopicName.parse(command.topic)
    version = await session.service.schemas.register(topic, command.schema)
    session.write(schemas.get_or_create_schema_response(command.request_id, version))

"""The schema version of a letter (spec SDK-25; AUTO_PRODUCE_BYTES of the Java client).

A version is valid within one topic, so a letter can't have that of its message: the message's
schema is fetched, and registered for the letter's topic.
"""

from __future__ import annotations

import trio

from geminga._connection.connection import Connection, error_name
from geminga._connection.core import Core
from geminga.errors import from_broker
from geminga.message import Message
from geminga_protocol.commands import schemas as commands
from geminga_protocol.pb.pulsar_api_pb2 import Schema
from geminga_protocol.topic_name import TopicName

VERSIONS_MAX = 1000
"""Bound of cached versions; above it the cache is cleared."""


class LetterSchemas:
    """Schema versions in topics of letters, by the versions in the messages' topics."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._versions: dict[tuple[str, bytes, str], bytes] = {}
        self._asking = trio.Lock()

    async def version_of(self, message: Message, topic: str) -> bytes | None:
        """The version of a message's schema in the topic of letters; None without a schema.

        Raises GemingaError.
        """
        version = message.schema_version
        if version is None:
            return None
        source = str(TopicName.parse(message.topic_name).partitioned_base)
        wanted = source, version, topic
        async with self._asking:
            found = self._versions.get(wanted)
            if found is None:
                schema = await self._schema(message.topic_name, version)
                found = await self._register(topic, schema)
                if len(self._versions) >= VERSIONS_MAX:
                    self._versions.clear()
                self._versions[wanted] = found
            return found

    async def _schema(self, topic: str, version: bytes) -> Schema:
        connection = await self._broker_of(topic)
        answer = await connection.request(
            lambda n: commands.get_schema(n, topic, schema_version=version),
            timeout_s=self._core.options.operation_timeout_s,
            topic=topic,
        )
        found = answer.getSchemaResponse
        if found.HasField("error_code"):
            raise from_broker(error_name(found.error_code), found.error_message, topic)
        return found.schema

    async def _register(self, topic: str, schema: Schema) -> bytes:
        connection = await self._broker_of(topic)
        answer = await connection.request(
            lambda n: commands.get_or_create_schema(n, topic, schema),
            timeout_s=self._core.options.operation_timeout_s,
            topic=topic,
        )
        made = answer.getOrCreateSchemaResponse
        if made.HasField("error_code"):
            raise from_broker(error_name(made.error_code), made.error_message, topic)
        return made.schema_version

    async def _broker_of(self, topic: str) -> Connection:
        # Only the topic's owner registers a schema for it.
        return await self._core.pool.get(await self._core.lookup.broker_of(topic))

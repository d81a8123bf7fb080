"""Schemas of topics, fetched from the broker (spec SDK-41)."""

from __future__ import annotations

from dataclasses import replace

from geminga._connection.connection import error_name
from geminga._connection.core import Core
from geminga.errors import GemingaError, TopicNotFoundError, from_broker
from geminga.options import ProducerOptions
from geminga.schema._auto import AutoProduce
from geminga.schema._info import SchemaInfo
from geminga_protocol.commands import schemas as commands


async def schema_of(core: Core, topic: str, version: bytes | None = None) -> SchemaInfo | None:
    """A version of the topic's schema, or the latest; None if it has none. Raises GemingaError."""

    async def timed() -> SchemaInfo | None:
        if core.metrics is None:
            return await ask()
        with core.metrics.lookup("schema"):
            return await ask()

    async def ask() -> SchemaInfo | None:
        connection = await core.pool.get(await core.lookup.broker_of(topic))
        answer = await connection.request(
            lambda n: commands.get_schema(n, topic, schema_version=version),
            timeout_s=core.options.operation_timeout_s,
            topic=topic,
        )
        found = answer.getSchemaResponse
        if not found.HasField("error_code"):
            return SchemaInfo.from_wire(found.schema)
        error = from_broker(error_name(found.error_code), found.error_message, topic)
        if isinstance(error, TopicNotFoundError):
            return None
        raise error

    return await core.with_retries(timed)


async def with_topic_schema(
    core: Core, topic: str, partitions: int, options: ProducerOptions
) -> ProducerOptions:
    """The options with the topic's own schema, if the topic decides (an AUTO schema)."""
    if not isinstance(options.schema, AutoProduce):
        return options
    asked = f"{topic}-partition-0" if partitions else topic
    try:
        info = await schema_of(core, asked)
    except GemingaError as error:
        raise error.of_topic(topic) from error.__cause__
    return replace(options, schema=options.schema._for_topic(info))

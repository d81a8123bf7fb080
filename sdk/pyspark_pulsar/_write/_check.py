"""What the driver asks the broker before any task writes (spec SP-10)."""

from __future__ import annotations

from pyspark.sql.types import StructType

import geminga
from geminga.schema import AlreadyEncoded, SchemaInfo
from pyspark_pulsar._clients import client_for
from pyspark_pulsar._encode import Frame, are_halves, frame_of
from pyspark_pulsar._options._write_options import SchemaChoice, WriteOptions
from pyspark_pulsar._write._faults import explained
from pyspark_pulsar.errors import InvalidOption, TopicMissing


def planned(schema: StructType, options: WriteOptions) -> Frame:
    """How the frame is written. Asks the broker only where the topic's own schema counts: where it
    is asked for, and for pairs. Columns `key` and `value` are a pair if the topic has pairs, else a
    record. Raises ConnectorError.
    """
    choice, topic = options.schema_choice, options.topic
    if choice is SchemaChoice.TOPIC:
        if topic is None:
            raise InvalidOption("schemaType", "is topic, which needs the option topic")
        return frame_of(schema, options, _topic_schema(options, topic))
    frame = frame_of(schema, options)
    may_be_pair = choice is SchemaChoice.KEYVALUE or (
        choice is SchemaChoice.AUTO and are_halves(frame.layout.values)
    )
    if topic is None or not may_be_pair:
        return frame
    try:
        return frame_of(schema, options, _topic_schema(options, topic))
    except TopicMissing:
        return frame


def _topic_schema(options: WriteOptions, topic: str) -> SchemaInfo | None:
    try:
        return client_for(options.client).topic_schema(topic)
    except geminga.GemingaError as error:
        raise explained(topic, error) from error


def check_topic(frame: Frame, options: WriteOptions) -> None:
    """Be a producer of the topic for a moment: so the schema is registered, and what the broker
    refuses is known before a task begins. Topics of a column are known to the tasks only. Raises
    ConnectorError.
    """
    topic = options.topic
    if topic is None:
        return
    try:
        client_for(options.client).create_producer(
            topic, schema=AlreadyEncoded(frame.info), **options.producer.keywords()
        ).close()
    except geminga.GemingaError as error:
        raise explained(topic, error) from error

"""The driver's checks with the broker before any task writes (spec SP-10)."""

from __future__ import annotations

import logging

from pyspark.sql.types import StructType

import geminga
from geminga.schema import AlreadyEncoded, SchemaInfo
from pyspark_pulsar._clients import client_for
from pyspark_pulsar._encode import Frame, are_halves, frame_of
from pyspark_pulsar._options._write_options import SchemaChoice, WriteOptions
from pyspark_pulsar._write._faults import explained
from pyspark_pulsar._write._keeping import is_there, warn_if_unkept
from pyspark_pulsar.errors import InvalidOption, TopicMissing

logger = logging.getLogger("pyspark_pulsar")

TOLD_MAX = 1000
_told: set[str] = set()
"""Warnings already logged: a stream is planned for each micro-batch."""


def planned(schema: StructType, options: WriteOptions) -> Frame:
    """As `_planned`; warns once about columns that look like Kafka's."""
    frame = _planned(schema, options)
    told = kafka_habit(frame, options.topic)
    if told is not None and options.schema_choice is SchemaChoice.AUTO and told not in _told:
        if len(_told) < TOLD_MAX:
            _told.add(told)
        logger.warning("%s", told)
    return frame


def _planned(schema: StructType, options: WriteOptions) -> Frame:
    """How the frame is written. Asks the broker only if the topic's schema matters: if the options
    ask for it, and for pairs. Columns `key` and `value` are a pair if the topic has pairs, else a
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
        return client_for(options.client).get_schema(topic)
    except geminga.GemingaError as error:
        raise explained(topic, error) from error


_KAFKA = {
    "key": "__key",
    "headers": "__properties (map<string,string>)",
    "topic": "__topic",
    "partition": "__partition",
    "timestamp": "__eventTime",
}
"""Columns of Spark's Kafka sink and source, and their names here."""
_KAFKA_OTHERS = frozenset({"value", "offset", "timestamptype"})


def kafka_habit(frame: Frame, topic: str | None) -> str | None:
    """A warning if the frame has the columns of Spark's Kafka sink, which here are fields of a
    record, or a pair; else None.
    """
    values = {name.lower(): name for name in frame.layout.values}
    meant = [name for name in _KAFKA if name in values]
    if frame.halves or "value" not in values or not {"key", "headers"} & values.keys():
        return None
    if values.keys() - _KAFKA.keys() - _KAFKA_OTHERS:
        return None
    instead = ", ".join(f"{values[name]} to {_KAFKA[name]}" for name in meant)
    pair = "; or make it a topic of pairs by schemaType=keyvalue" if "key" in values else ""
    return (
        f"{topic or 'the topics of __topic'}: columns {', '.join(frame.layout.values)} become "
        f"fields of one record; to write as with Kafka rename {instead}{pair}"
    )


def check_topic(frame: Frame, options: WriteOptions) -> None:
    """Create a producer of the topic and close it: this registers the schema, and finds errors
    before a task starts. Warn if nothing retains the messages. Topics named by a column are known
    to the tasks only. Raises ConnectorError.
    """
    topic = options.topic
    if topic is None:
        return
    client = client_for(options.client)
    try:
        was_there = is_there(client, topic)
        client.create_producer(
            topic, schema=AlreadyEncoded(frame.info), **options.producer.keywords()
        ).close()
        warn_if_unkept(client, options, is_new=not was_there)
    except geminga.GemingaError as error:
        raise explained(topic, error) from error

"""Retry letters and dead letters: their topics and properties (spec SDK-25; RetryMessageUtil,
ConsumerBuilderImpl and ConsumerImpl of the Java client). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from geminga._entries.encode import Extras
from geminga.message import Message
from geminga.options import DeadLetterPolicy
from geminga_protocol.topic_name import TopicName

RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_ID_OLD = "ORIGIN_MESSAGE_IDY_TIME"
"""The older name of the property; the Java client writes both."""


def complete(
    policy: DeadLetterPolicy | None, topic: TopicName, subscription: str, *, retries: bool
) -> DeadLetterPolicy | None:
    """The policy with the missing names.

    With retries, both names derive from the first topic of the subscription. Without, a dead
    letter's topic derives from the message's topic or partition (`dead_letter_topic` stays None).
    """
    if not retries:
        return policy
    base = f"{topic}-{subscription}"
    policy = policy or DeadLetterPolicy()
    return replace(
        policy,
        retry_letter_topic=policy.retry_letter_topic or f"{base}-RETRY",
        dead_letter_topic=policy.dead_letter_topic or f"{base}-DLQ",
    )


def dead_letter_topic(policy: DeadLetterPolicy, topic: str, subscription: str) -> str:
    """The dead-letter topic of a topic or partition."""
    return policy.dead_letter_topic or f"{topic}-{subscription}-DLQ"


def letter_properties(message: Message, subscription: str) -> dict[str, str]:
    """A letter's properties: the message's own, and its original topic and id."""
    topic = message.topic_name
    origin = {
        REAL_TOPIC: str(TopicName.parse(topic).partitioned_base),
        ORIGIN_MESSAGE_ID_OLD: repr(message.message_id),
        ORIGIN_MESSAGE_ID: repr(message.message_id),
        REAL_SUBSCRIPTION: subscription,
    }
    return origin | message.properties


class RetryLetter(NamedTuple):
    """The properties of a message for its next try, and the number of that try, from 1 on."""

    properties: dict[str, str]
    times: int


def retry_letter(
    message: Message, subscription: str, delay_ms: int, more: Mapping[str, str]
) -> RetryLetter:
    """A message for the retry topic, with additional properties of the program."""
    properties = letter_properties(message, subscription) | dict(more)
    before = properties.get(RECONSUME_TIMES, "0")
    # A value that isn't a number was not written by a client; it counts as the first try.
    times = (int(before) if before.isdecimal() else 0) + 1
    properties[RECONSUME_TIMES] = str(times)
    properties[DELAY_TIME] = str(delay_ms)
    return RetryLetter(properties, times)


def letter_extras(
    message: Message,
    properties: Mapping[str, str],
    deliver_at_ms: int | None,
    schema_version: bytes | None,
) -> Extras:
    """A letter's metadata: keys (in their form) and event time of the message, and the schema
    version of the letter's topic.
    """
    extras = Extras(
        properties,
        message.partition_key,
        message.ordering_key,
        message.event_time_ms,
        deliver_at_ms,
        key_is_base64=message.has_base64_key,
        schema_version=schema_version,
    )
    # An interceptor may have set a payload.
    extras.is_null = message.is_null and not message.data
    return extras


def producer_name(topic: str, subscription: str, consumer: str, chance: str) -> str:
    """Name of the producer of a topic's or partition's dead letters (the broker generates that for
    retry letters). `chance` is five random characters.
    """
    return f"{topic}-{subscription}-{consumer}-{chance}-DLQ"

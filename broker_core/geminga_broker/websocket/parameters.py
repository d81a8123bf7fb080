"""Query parameters as SDK options (`ProducerHandler`, `ConsumerHandler`, `ReaderHandler`). Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from urllib.parse import unquote

import geminga
from geminga.options import ConsumerKeywords, ProducerKeywords
from geminga_broker.errors import BrokerError
from geminga_broker.limits import check_subscription, check_topic
from geminga_broker.websocket.errors import BadParameter, Refused
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName

Query = Mapping[str, str]
T = TypeVar("T")
E = TypeVar("E", bound=Enum)

QUEUE_SIZE_MAX = 1000
ACK_TIMEOUT_MS_MIN = 1000
LONG_MAX = (1 << 63) - 1
_NO_CRYPTO = "encryption needs keys, and the WebSocket service has none: encrypt in the client"


def _whole(query: Query, name: str, at_least: int = 0, at_most: int = (1 << 31) - 1) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise BadParameter(f'For input string: "{text}"')
    if not at_least <= int(text) <= at_most:
        raise BadParameter(f"{name} needs to be >= {at_least}")
    return int(text)


def _choice(query: Query, name: str, allowed: Mapping[str, T]) -> T | None:
    text = query.get(name)
    if text is None:
        return None
    if text not in allowed:
        raise BadParameter(f"Invalid {name} {text}")
    return allowed[text]


def _flag(query: Query, name: str) -> bool:
    return query.get(name, "").lower() == "true"


def _refuse_crypto(query: Query, *names: str) -> None:
    if any(name in query for name in names):
        raise Refused(500, f"Failed to create producer/consumer: {_NO_CRYPTO}")


_ROUTING = {
    "SinglePartition": geminga.RoutingMode.SINGLE_PARTITION,
    "RoundRobinPartition": geminga.RoutingMode.ROUND_ROBIN,
    # HTTP can't name a custom router; Apache uses its default.
    "CustomPartition": geminga.RoutingMode.SINGLE_PARTITION,
}
_HASHING = {
    "JavaStringHash": geminga.HashingScheme.JAVA_STRING_HASH,
    "Murmur3_32Hash": geminga.HashingScheme.MURMUR3_32,
}
_COMPRESSION = {one.name: one for one in geminga.CompressionType}
_TYPES = {
    "Exclusive": geminga.ConsumerType.EXCLUSIVE,
    "Shared": geminga.ConsumerType.SHARED,
    "Failover": geminga.ConsumerType.FAILOVER,
    "Key_Shared": geminga.ConsumerType.KEY_SHARED,
}
_POSITIONS = {
    "Latest": geminga.InitialPosition.LATEST,
    "Earliest": geminga.InitialPosition.EARLIEST,
}


def producer_options(query: Query) -> ProducerKeywords:
    """Raises Refused."""
    _refuse_crypto(query, "encryptionKeys")
    options = ProducerKeywords(
        batching_enabled=_flag(query, "batchingEnabled"),
        routing_mode=geminga.RoutingMode.SINGLE_PARTITION,
    )
    if "producerName" in query:
        options["producer_name"] = query["producerName"]
    if (sequence_id := _whole(query, "initialSequenceId", at_most=LONG_MAX)) is not None:
        options["initial_sequence_id"] = sequence_id
    if (hashing := _choice(query, "hashingScheme", _HASHING)) is not None:
        options["hashing_scheme"] = hashing
    if (routing := _choice(query, "messageRoutingMode", _ROUTING)) is not None:
        options["routing_mode"] = routing
    if (compression := _choice(query, "compressionType", _COMPRESSION)) is not None:
        options["compression_type"] = compression
    if (timeout_ms := _whole(query, "sendTimeoutMillis")) is not None:
        options["send_timeout_s"] = timeout_ms / 1000
    if messages := _whole(query, "batchingMaxMessages"):
        options["batching_max_messages"] = messages
    if pending := _whole(query, "maxPendingMessages", at_least=-1):
        options["max_pending_messages"] = max(1, pending)
    if (delay_ms := _whole(query, "batchingMaxPublishDelay")) is not None:
        options["batching_max_publish_delay_s"] = delay_ms / 1000
    return options


@dataclass(frozen=True, slots=True)
class Consuming:
    """A consumer's options, and its number of messages before the next command."""

    options: ConsumerKeywords
    pending_max: int
    """0 in pull mode, where permits decide."""
    pull_mode: bool


def consumer_options(query: Query, topic: str, subscription: str) -> Consuming:
    """Raises Refused."""
    options = ConsumerKeywords()
    if (ack_timeout_ms := _whole(query, "ackTimeoutMillis")) is not None:
        if 0 < ack_timeout_ms < ACK_TIMEOUT_MS_MIN:
            raise BadParameter(f"Ack timeout should be greater than {ACK_TIMEOUT_MS_MIN} ms")
        options["ack_timeout_s"] = ack_timeout_ms / 1000
    if (kind := _choice(query, "subscriptionType", _TYPES)) is not None:
        options["consumer_type"] = kind
    durable = {"Durable": True, "NonDurable": False}
    if (is_durable := _choice(query, "subscriptionMode", durable)) is not None:
        options["durable"] = is_durable
    if (position := _choice(query, "subscriptionInitialPosition", _POSITIONS)) is not None:
        options["initial_position"] = position
    queue = _queue_size(query)
    options["receiver_queue_size"] = queue
    if "consumerName" in query:
        options["consumer_name"] = query["consumerName"]
    if (priority := _whole(query, "priorityLevel")) is not None:
        options["priority_level"] = priority
    if (delay_ms := _whole(query, "negativeAckRedeliveryDelay")) is not None:
        options["negative_ack_redelivery_delay_s"] = delay_ms / 1000
    policy = _dead_letters(query, topic, subscription)
    # Apache's service takes one with all types; the client refuses those without an effect.
    if policy is not None and kind is not None and kind.is_shared:
        options["dead_letter_policy"] = policy
    pull_mode = _flag(query, "pullMode")
    return Consuming(options, 0 if pull_mode else max(1, queue), pull_mode)


def _queue_size(query: Query) -> int:
    given = _whole(query, "receiverQueueSize")
    return QUEUE_SIZE_MAX if given is None else min(given, QUEUE_SIZE_MAX)


def _dead_letter_topic(query: Query, topic: str, subscription: str) -> str | None:
    if "maxRedeliverCount" not in query and "deadLetterTopic" not in query:
        return None
    return query.get("deadLetterTopic") or f"{topic}-{subscription}-DLQ"


def dead_letters_of(query: Query, endpoint: Endpoint) -> TopicName | None:
    """Where a consumer's dead letters go; None without them. Raises Refused."""
    name = _dead_letter_topic(query, str(endpoint.topic), endpoint.subscription)
    if endpoint.kind != "consumer" or name is None:
        return None
    try:
        return TopicName.parse(name)
    except LocalProtocolError as error:
        raise BadParameter(f"deadLetterTopic: {error}") from None


def _dead_letters(query: Query, topic: str, subscription: str) -> geminga.DeadLetterPolicy | None:
    name = _dead_letter_topic(query, topic, subscription)
    if name is None:
        return None
    count = _whole(query, "maxRedeliverCount", at_least=1)
    if count is None:
        return geminga.DeadLetterPolicy(dead_letter_topic=name)
    return geminga.DeadLetterPolicy(max_redeliver_count=count, dead_letter_topic=name)


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader's start, and its number of messages before the next command."""

    start: MessageId
    queue_size: int
    name: str | None


def reader_options(query: Query) -> Reading:
    """Raises Refused."""
    ends = {"": geminga.LATEST, "latest": geminga.LATEST, "earliest": geminga.EARLIEST}
    text = query.get("messageId", "").strip()
    start = ends.get(text) or read_message_id(text, BadParameter)
    return Reading(start, _queue_size(query), query.get("readerName"))


def read_message_id(text: str | None, refuse: Callable[[str], Exception]) -> MessageId:
    """A message id in this API's form. Raises the error made by `refuse`."""
    if not text:
        raise refuse("messageId is missing")
    try:
        return MessageId.deserialize(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, RemoteProtocolError) as error:
        raise refuse(f"messageId: {error}") from None


DOMAINS = ("persistent", "non-persistent")
KINDS = ("producer", "consumer", "reader")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One WebSocket's purpose."""

    kind: str
    topic: TopicName
    subscription: str = ""


def parse_path(path: str) -> Endpoint:
    """`/ws/v2/{kind}/{domain}/{tenant}/{namespace}/{topic}[/{subscription}]`, not decoded; a name
    of a topic may have slashes, encoded or not. Raises Refused: 404 for a path outside of this API,
    else 400.
    """
    parts = path.split("/")
    if parts[:3] != ["", "ws", "v2"] or len(parts) < 4 or parts[3] not in KINDS:
        raise Refused(404, "Not found")
    kind, rest = parts[3], parts[4:]
    subscription = ""
    if kind == "consumer":
        if len(rest) != 5:
            raise BadParameter("Invalid topic name format")
        subscription = unquote(rest.pop())
        if not subscription:
            raise BadParameter("Empty subscription name")
    if len(rest) < 4 or rest[0] not in DOMAINS:
        raise BadParameter("Invalid topic name format")
    domain, tenant, namespace = rest[:3]
    local = unquote("/".join(part for part in rest[3:] if part))
    try:
        name = f"{domain}://{unquote(tenant)}/{unquote(namespace)}/{local}"
        check_topic(name)
        check_subscription(subscription)
        topic = TopicName.parse(name)
    except (BrokerError, LocalProtocolError) as error:
        raise BadParameter(f"Invalid topic name: {error}") from None
    return Endpoint(kind, topic, subscription)

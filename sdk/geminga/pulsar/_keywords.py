"""The official client's options as options of `geminga`, the same for both faces.

What has no effect here has none there either (`use_tls`, `log_conf_file_path`), or is of no
consequence: `io_threads` (one thread does it all), `concurrent_lookup_requests` (lookups are never
refused), `broker_consumer_stats_cache_time_ms` (neither client shows these statistics).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import geminga.encryption
import geminga.options
from geminga.pulsar import _policies as policies
from geminga.pulsar._auth import Authentication
from geminga.pulsar._checks import Kinds, check_all, check_texts, staying
from geminga.pulsar._enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from geminga.pulsar._message import OutgoingMessage
from geminga.pulsar.exceptions import InvalidConfiguration, OperationNotSupported
from geminga.pulsar.schema.schema import Schema

Given = Mapping[str, Any]
"""A call's arguments by name."""

NO_BOUND = 2**31 - 1
NO_MEMORY_BOUND = 2**62
"""The official client bounds messages, not memory, by default."""
ACK_TIMEOUT_LEAST_MS = 10_000
_INT, _BOOL, _STR = (int, False), (bool, False), (str, False)
_STR_OR_NONE, _INT_OR_NONE = (str, True), (int, True)

_CLIENT: Kinds = {
    "authentication": (Authentication, True),
    "operation_timeout_seconds": _INT,
    "connection_timeout_ms": _INT,
    "io_threads": _INT,
    "message_listener_threads": _INT,
    "concurrent_lookup_requests": _INT,
    "log_conf_file_path": _STR_OR_NONE,
    "stats_interval_in_seconds": _INT,
    "use_tls": _BOOL,
    "tls_trust_certs_file_path": _STR_OR_NONE,
    "tls_allow_insecure_connection": _BOOL,
    "tls_validate_hostname": _BOOL,
    "listener_name": _STR_OR_NONE,
    "tls_private_key_file_path": _STR_OR_NONE,
    "tls_certificate_file_path": _STR_OR_NONE,
}
_PRODUCER: Kinds = {
    "topic": _STR,
    "producer_name": _STR_OR_NONE,
    "schema": (Schema, False),
    "initial_sequence_id": _INT_OR_NONE,
    "send_timeout_millis": _INT,
    "compression_type": (CompressionType, False),
    "max_pending_messages": _INT,
    "max_pending_messages_across_partitions": _INT,
    "block_if_queue_full": _BOOL,
    "batching_enabled": _BOOL,
    "batching_max_messages": _INT,
    "batching_max_allowed_size_in_bytes": _INT,
    "batching_max_publish_delay_ms": _INT,
    "chunking_enabled": _BOOL,
    "message_routing_mode": (PartitionsRoutingMode, False),
    "properties": (dict, True),
    "batching_type": (BatchingType, False),
    "encryption_key": _STR_OR_NONE,
    "crypto_key_reader": (policies.CryptoKeyReader, True),
    "lazy_start_partitioned_producers": _BOOL,
    "access_mode": (ProducerAccessMode, False),
}
_CONSUMER: Kinds = {
    "subscription_name": _STR,
    "consumer_type": (ConsumerType, False),
    "schema": (Schema, False),
    "receiver_queue_size": _INT,
    "max_total_receiver_queue_size_across_partitions": _INT,
    "consumer_name": _STR_OR_NONE,
    "unacked_messages_timeout_ms": _INT_OR_NONE,
    "broker_consumer_stats_cache_time_ms": _INT,
    "negative_ack_redelivery_delay_ms": _INT,
    "is_read_compacted": _BOOL,
    "properties": (dict, True),
    "initial_position": (InitialPosition, False),
    "crypto_key_reader": (policies.CryptoKeyReader, True),
    "replicate_subscription_state_enabled": _BOOL,
    "max_pending_chunked_message": _INT,
    "auto_ack_oldest_chunked_message_on_queue_full": _BOOL,
    "start_message_id_inclusive": _BOOL,
    "batch_receive_policy": (policies.ConsumerBatchReceivePolicy, True),
    "key_shared_policy": (policies.ConsumerKeySharedPolicy, True),
    "batch_index_ack_enabled": _BOOL,
    "regex_subscription_mode": (RegexSubscriptionMode, False),
    "dead_letter_policy": (policies.ConsumerDeadLetterPolicy, True),
    "crypto_failure_action": (ConsumerCryptoFailureAction, False),
}
_READER: Kinds = {
    "topic": _STR,
    "schema": (Schema, False),
    "receiver_queue_size": _INT,
    "reader_name": _STR_OR_NONE,
    "subscription_role_prefix": _STR_OR_NONE,
    "is_read_compacted": _BOOL,
    "crypto_key_reader": (policies.CryptoKeyReader, True),
    "start_message_id_inclusive": _BOOL,
    "crypto_failure_action": (ConsumerCryptoFailureAction, False),
}


def client_keywords(given: Given) -> dict[str, Any]:
    """Options of `geminga.Client`. Raises ValueError for a wrong type."""
    check_all(_CLIENT, given)
    authentication: Authentication | None = given["authentication"]
    return {
        "authentication": authentication.auth if authentication else None,
        "operation_timeout_s": given["operation_timeout_seconds"],
        "connection_timeout_s": given["connection_timeout_ms"] / 1000,
        "stats_interval_s": given["stats_interval_in_seconds"],
        "tls_trust_certs_file_path": given["tls_trust_certs_file_path"] or None,
        "tls_allow_insecure_connection": given["tls_allow_insecure_connection"],
        "tls_validate_hostname": given["tls_validate_hostname"],
        "listener_name": given["listener_name"] or None,
        "tls_private_key_file_path": given["tls_private_key_file_path"],
        "tls_certificate_file_path": given["tls_certificate_file_path"],
        "memory_limit_bytes": NO_MEMORY_BOUND,
    }


def producer_keywords(given: Given) -> dict[str, Any]:
    """Options of `create_producer`. Raises ValueError, TypeError, InvalidConfiguration."""
    check_all(_PRODUCER, given)
    check_texts(given["properties"], "properties")
    if given["batching_enabled"] and given["chunking_enabled"]:
        raise ValueError("batching_enabled and chunking_enabled can't be used together")
    if given["batching_max_messages"] <= 1:
        raise ValueError("batching_max_messages must be above 1")
    mode: PartitionsRoutingMode = given["message_routing_mode"]
    router: Callable[..., Any] | None = given["message_router"]
    if mode is PartitionsRoutingMode.CustomPartition and router is None:
        raise InvalidConfiguration("CustomPartition needs a message_router")
    return {
        "schema": given["schema"].schema_info().encoded(),
        "producer_name": given["producer_name"] or None,
        "initial_sequence_id": given["initial_sequence_id"] or None,
        "send_timeout_s": max(0, given["send_timeout_millis"]) / 1000,
        "compression_type": geminga.options.CompressionType(int(given["compression_type"])),
        "max_pending_messages": _pending_max(given),
        "batching_enabled": given["batching_enabled"],
        "batching_max_messages": given["batching_max_messages"],
        "batching_max_bytes": _bound(given["batching_max_allowed_size_in_bytes"]),
        "batching_max_publish_delay_s": given["batching_max_publish_delay_ms"] / 1000,
        "batching_type": _BATCHING[given["batching_type"]],
        "chunking_enabled": given["chunking_enabled"],
        "routing_mode": _ROUTING[mode],
        "hashing_scheme": geminga.options.HashingScheme.BOOST_HASH,
        "message_router": None if router is None else _routing(router),
        "lazy_start_partitioned_producers": given["lazy_start_partitioned_producers"],
        "properties": dict(given["properties"] or {}),
        "encryption_keys": [given["encryption_key"]] if given["encryption_key"] else [],
        "crypto_key_reader": _key_reader(given),
        "access_mode": geminga.options.ProducerAccessMode(int(given["access_mode"])),
    }


def consumer_keywords(given: Given) -> dict[str, Any]:
    """Options of `subscribe`. Raises ValueError, TypeError."""
    check_all(_CONSUMER, given)
    check_texts(given["properties"], "properties")
    ack_timeout_ms = given["unacked_messages_timeout_ms"] or 0
    if 0 < ack_timeout_ms < ACK_TIMEOUT_LEAST_MS:
        raise ValueError("unacked_messages_timeout_ms must be 10 seconds at least")
    kind: ConsumerType = given["consumer_type"]
    made = {
        "schema": given["schema"].schema_info().encoded(),
        "consumer_type": geminga.options.ConsumerType(int(kind)),
        "initial_position": geminga.options.InitialPosition(int(given["initial_position"])),
        "consumer_name": given["consumer_name"] or None,
        "receiver_queue_size": given["receiver_queue_size"],
        "receiver_queue_total_max": given["max_total_receiver_queue_size_across_partitions"],
        "ack_timeout_s": ack_timeout_ms / 1000,
        "negative_ack_redelivery_delay_s": given["negative_ack_redelivery_delay_ms"] / 1000,
        "read_compacted": given["is_read_compacted"],
        "properties": dict(given["properties"] or {}),
        "crypto_key_reader": _key_reader(given),
        "replicate_subscription_state": given["replicate_subscription_state_enabled"],
        "max_pending_chunked_messages": given["max_pending_chunked_message"],
        "auto_ack_oldest_chunked_message_on_queue_full": given[
            "auto_ack_oldest_chunked_message_on_queue_full"
        ],
        "start_message_id_inclusive": given["start_message_id_inclusive"],
        "batch_index_ack_enabled": given["batch_index_ack_enabled"],
        "regex_subscription_mode": geminga.options.RegexSubscriptionMode(
            int(given["regex_subscription_mode"])
        ),
        "crypto_failure_action": _CRYPTO[given["crypto_failure_action"]],
    }
    if given["receiver_queue_size"]:
        batches = given["batch_receive_policy"]
        made["batch_receive_policy"] = (
            geminga.options.BatchReceivePolicy() if batches is None else batches.policy()._policy()
        )
    # With other types both have no effect in the official client either.
    keys, letters = given["key_shared_policy"], given["dead_letter_policy"]
    if keys is not None and kind is ConsumerType.KeyShared:
        made["key_shared_policy"] = keys.policy()._policy()
    if letters is not None and kind in (ConsumerType.KeyShared, ConsumerType.Shared):
        made["dead_letter_policy"] = letters.policy()._policy()
    return made


def reader_keywords(given: Given) -> dict[str, Any]:
    """Options of `create_reader`. Raises ValueError."""
    check_all(_READER, given)
    return {
        "schema": given["schema"].schema_info().encoded(),
        "receiver_queue_size": max(1, given["receiver_queue_size"]),
        "reader_name": given["reader_name"] or None,
        "subscription_role_prefix": given["subscription_role_prefix"] or "",
        "read_compacted": given["is_read_compacted"],
        "crypto_key_reader": _key_reader(given),
        "start_message_id_inclusive": given["start_message_id_inclusive"],
        "crypto_failure_action": _CRYPTO[given["crypto_failure_action"]],
    }


def checked_topic(topic: object) -> Any:
    """A name, a list of names, or a compiled pattern. Raises ValueError, TypeError."""
    if isinstance(topic, list):
        if not topic:
            raise OperationNotSupported("a consumer needs a topic: the list is empty")
        for each in topic:
            if not isinstance(each, str):
                raise TypeError(f"topic must be a list of texts, not of {type(each).__name__}")
        return topic
    if not isinstance(topic, str | re.Pattern):
        raise ValueError("topic must be a text, a list of texts or a compiled pattern")
    return topic


def _routing(router: Callable[..., Any]) -> geminga.options.MessageRouter:
    def choose(message: geminga.options.RoutedMessage, count: int) -> int:
        return int(router(OutgoingMessage(message), count))

    return staying(choose)


def _pending_max(given: Given) -> int:
    bounds = given["max_pending_messages"], given["max_pending_messages_across_partitions"]
    if min(bounds) < 0:
        raise ValueError("max_pending_messages must not be below 0")
    return min(_bound(each) for each in bounds)


def _bound(number: int) -> int:
    return number if number > 0 else NO_BOUND


def _key_reader(given: Given) -> geminga.encryption.CryptoKeyReader | None:
    reader: policies.CryptoKeyReader | None = given["crypto_key_reader"]
    return None if reader is None else reader.cryptoKeyReader


_BATCHING = {
    BatchingType.Default: geminga.options.BatchingType.DEFAULT,
    BatchingType.KeyBased: geminga.options.BatchingType.KEY_BASED,
}
_ROUTING = {
    PartitionsRoutingMode.UseSinglePartition: geminga.options.RoutingMode.SINGLE_PARTITION,
    PartitionsRoutingMode.RoundRobinDistribution: geminga.options.RoutingMode.ROUND_ROBIN,
    PartitionsRoutingMode.CustomPartition: geminga.options.RoutingMode.ROUND_ROBIN,
}
_CRYPTO = {
    ConsumerCryptoFailureAction.FAIL: geminga.encryption.ConsumerCryptoFailureAction.FAIL,
    ConsumerCryptoFailureAction.DISCARD: geminga.encryption.ConsumerCryptoFailureAction.DISCARD,
    ConsumerCryptoFailureAction.CONSUME: geminga.encryption.ConsumerCryptoFailureAction.CONSUME,
}

"""The keywords of calls with options. Made by tools/faces.py: don't edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from geminga._options.consumer import (
    ConsumerType,
    DeadLetterPolicy,
    InitialPosition,
    KeySharedPolicy,
    MultiplierBackoff,
    RegexSubscriptionMode,
)
from geminga._options.consumer_hooks import (
    BatchReceivePolicy,
    ConsumerEventListener,
    ConsumerInterceptor,
)
from geminga._options.kinds import (
    BatchingType,
    CompressionType,
    HashingScheme,
    MessageRouter,
    ProducerAccessMode,
    RoutingMode,
)
from geminga._options.producer_interceptors import ProducerInterceptor
from geminga._telemetry.providers import MeterProvider, TracerProvider
from geminga.auth import Authentication
from geminga.encryption import ConsumerCryptoKeywords, ProducerCryptoKeywords
from geminga.failover import AutoClusterFailover


class TlsKeywords(TypedDict, total=False):
    """Keywords of `TlsOptions`."""

    tls_trust_certs_file_path: str | None
    tls_allow_insecure_connection: bool
    tls_validate_hostname: bool
    tls_certificate_file_path: str | None
    tls_private_key_file_path: str | None
    tls_protocols: Sequence[str]
    tls_ciphers: Sequence[str]


class AdminKeywords(TlsKeywords, total=False):
    """Keywords of `AdminOptions`."""

    authentication: Authentication | None
    request_timeout_s: float
    connection_timeout_s: float
    redirects_max: int
    trusted_broker_hosts: Sequence[str]
    answer_bytes_max: int


class ClientKeywords(TlsKeywords, total=False):
    """Keywords of `ClientOptions`."""

    operation_timeout_s: float
    connection_timeout_s: float
    connections_per_broker: int
    keep_alive_interval_s: float
    memory_limit_bytes: int
    listener_name: str | None
    lookup_redirects_max: int
    trusted_broker_hosts: Sequence[str]
    initial_backoff_s: float
    max_backoff_s: float
    authentication: Authentication | None
    failover: AutoClusterFailover | None
    stats_interval_s: float
    tracer_provider: TracerProvider | None
    meter_provider: MeterProvider | None


class ProducerKeywords(ProducerCryptoKeywords, total=False):
    """Keywords of `ProducerOptions`."""

    producer_name: str | None
    initial_sequence_id: int | None
    send_timeout_s: float
    max_pending_messages: int
    compression_type: CompressionType
    batching_enabled: bool
    batching_max_messages: int
    batching_max_bytes: int
    batching_max_publish_delay_s: float
    batching_type: BatchingType
    chunking_enabled: bool
    chunk_max_message_size_bytes: int | None
    routing_mode: RoutingMode
    round_robin_partitions_max: int | None
    message_router: MessageRouter | None
    hashing_scheme: HashingScheme
    lazy_start_partitioned_producers: bool
    auto_update_partitions: bool
    auto_update_partitions_interval_s: float
    access_mode: ProducerAccessMode
    initial_subscription_name: str | None
    properties: Mapping[str, str]
    interceptors: Sequence[ProducerInterceptor]


class ConsumerKeywords(ConsumerCryptoKeywords, total=False):
    """Keywords of `ConsumerOptions`."""

    consumer_type: ConsumerType
    initial_position: InitialPosition
    consumer_name: str | None
    receiver_queue_size: int
    receiver_queue_total_max: int
    auto_scaled_receiver_queue_size_enabled: bool
    ack_grouping_time_s: float
    ack_grouping_max: int
    ack_receipt_enabled: bool
    batch_index_ack_enabled: bool
    negative_ack_redelivery_delay_s: float
    negative_ack_backoff: MultiplierBackoff | None
    ack_timeout_s: float
    ack_timeout_backoff: MultiplierBackoff | None
    regex_subscription_mode: RegexSubscriptionMode
    pattern_auto_discovery_period_s: float
    auto_update_partitions: bool
    auto_update_partitions_interval_s: float
    retry_enabled: bool
    consumer_event_listener: ConsumerEventListener | None
    interceptors: Sequence[ConsumerInterceptor]
    message_listener_concurrency: int
    batch_receive_policy: BatchReceivePolicy | None
    read_compacted: bool
    replicate_subscription_state: bool
    dead_letter_policy: DeadLetterPolicy | None
    priority_level: int
    durable: bool
    auto_create: bool
    start_message_id_inclusive: bool
    key_shared_policy: KeySharedPolicy | None
    max_pending_chunked_messages: int
    auto_ack_oldest_chunked_message_on_queue_full: bool
    expire_time_of_incomplete_chunked_message_s: float
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]


class ReaderKeywords(ConsumerCryptoKeywords, total=False):
    """Keywords of `ReaderOptions`."""

    reader_name: str | None
    subscription_name: str | None
    subscription_role_prefix: str
    read_compacted: bool
    auto_create: bool
    receiver_queue_size: int
    start_message_id_inclusive: bool
    max_pending_chunked_messages: int
    expire_time_of_incomplete_chunked_message_s: float

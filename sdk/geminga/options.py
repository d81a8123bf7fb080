"""Options of client, producers, consumers and readers, with Pulsar's names and the Java client's
defaults.

Each set is a frozen dataclass, which checks its values. `tools/faces.py` generates the TypedDicts
of the calls' keywords from them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from geminga._connection.tls_options import TlsOptions as TlsOptions
from geminga._options.checks import (
    COMMAND_BYTES_MAX,
    booleans,
    fits,
    instances,
    lists_of_texts,
    not_negative,
    of_enum,
    positive,
    text_or_none,
    texts,
    whole,
)
from geminga._options.checks import make as make
from geminga._options.consumer import ConsumerOptions as ConsumerOptions
from geminga._options.consumer import ConsumerType as ConsumerType
from geminga._options.consumer import DeadLetterPolicy as DeadLetterPolicy
from geminga._options.consumer import InitialPosition as InitialPosition
from geminga._options.consumer import KeySharedPolicy as KeySharedPolicy
from geminga._options.consumer import MultiplierBackoff as MultiplierBackoff
from geminga._options.consumer import ReaderOptions as ReaderOptions
from geminga._options.consumer import RegexSubscriptionMode as RegexSubscriptionMode
from geminga._options.consumer_hooks import BatchReceivePolicy as BatchReceivePolicy
from geminga._options.consumer_hooks import ConsumerEventListener as ConsumerEventListener
from geminga._options.consumer_hooks import ConsumerInterceptor as ConsumerInterceptor
from geminga._options.keywords import ClientKeywords as ClientKeywords
from geminga._options.keywords import ConsumerKeywords as ConsumerKeywords
from geminga._options.keywords import ProducerKeywords as ProducerKeywords
from geminga._options.keywords import ReaderKeywords as ReaderKeywords
from geminga._options.kinds import BatchingType as BatchingType
from geminga._options.kinds import CompressionType as CompressionType
from geminga._options.kinds import HashingScheme as HashingScheme
from geminga._options.kinds import MessageRouter as MessageRouter
from geminga._options.kinds import ProducerAccessMode as ProducerAccessMode
from geminga._options.kinds import RoutedMessage as RoutedMessage
from geminga._options.kinds import RoutingMode as RoutingMode
from geminga._options.producer_interceptors import ProducerInterceptor as ProducerInterceptor
from geminga._options.producer_interceptors import ProducerMessage as ProducerMessage
from geminga._telemetry.providers import MeterProvider, TracerProvider, check_providers
from geminga.auth import Authentication, check_authentication
from geminga.encryption import ProducerCryptoOptions as ProducerCryptoOptions
from geminga.errors import InvalidArgumentError
from geminga.failover import AutoClusterFailover
from geminga.schema._base import Schema, check_sending

_LONG_MAX = (1 << 63) - 1
"""Brokers and clients in Java read ids as signed."""


@dataclass(frozen=True)
class ClientOptions(TlsOptions):
    """Options of `connect`; see TlsOptions for those of TLS.

    Producers compute their rates and latencies every `stats_interval_s` (0: never).

    `trusted_broker_hosts`: hosts (`*` matches anything), or `host:port`, of brokers beside those
    of the service URL. With an `http://` service URL, credentials follow redirects to these only.
    If any are given, the client connects to no other broker, even if a lookup returns one.

    `tracer_provider` and `meter_provider` of OpenTelemetry (None: off): spans of all messages that
    producers send and consumers receive (`geminga.otel`), and metrics under Java's names.
    """

    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    connections_per_broker: int = 1
    keep_alive_interval_s: float = 30.0
    memory_limit_bytes: int = 64 * 1024 * 1024
    listener_name: str | None = None
    lookup_redirects_max: int = 20
    trusted_broker_hosts: Sequence[str] = ()
    initial_backoff_s: float = 0.1
    max_backoff_s: float = 60.0
    authentication: Authentication | None = None
    failover: AutoClusterFailover | None = None
    stats_interval_s: float = 60.0
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None

    def __post_init__(self) -> None:
        check_authentication(self.authentication)
        check_providers(self.tracer_provider, self.meter_provider)
        self.check_tls()
        policy: object = self.failover
        if policy is not None and not isinstance(policy, AutoClusterFailover):
            raise InvalidArgumentError(f"failover must be an AutoClusterFailover, not {policy!r}")
        positive(self, "operation_timeout_s", "connection_timeout_s", "keep_alive_interval_s")
        positive(self, "initial_backoff_s", "max_backoff_s")
        not_negative(self, "stats_interval_s")
        whole(self, "connections_per_broker", "memory_limit_bytes", least=1)
        whole(self, "lookup_redirects_max")
        text_or_none(self, "listener_name")
        lists_of_texts(self, "trusted_broker_hosts")


@dataclass(frozen=True)
class ProducerOptions(ProducerCryptoOptions):
    """Options of `Client.create_producer`; see `ProducerCryptoOptions` for those of encryption.

    `send_timeout_s=0` waits for ever. `max_pending_messages` is per partition. A batch is sent when
    it is full by count or bytes, when its delay has passed, or at once if nothing is in flight.
    `message_router` overrides `routing_mode`; `round_robin_partitions_max` bounds the partitions
    used for messages without a key. With `chunking_enabled`, which excludes batching, a message
    above the broker's limit, or above `chunk_max_message_size_bytes`, is sent as several entries
    (PIP-37). With `lazy_start_partitioned_producers` the first message of a partition connects to
    it (not for exclusive access). New partitions are found within
    `auto_update_partitions_interval_s`. `initial_sequence_id` is that of the last message before:
    the first one has the next (Java's `initialSequenceId`); -1 begins with 0.
    """

    producer_name: str | None = None
    initial_sequence_id: int | None = None
    send_timeout_s: float = 30.0
    max_pending_messages: int = 50_000
    compression_type: CompressionType = CompressionType.NONE
    batching_enabled: bool = True
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 * 1024
    batching_max_publish_delay_s: float = 0.001
    batching_type: BatchingType = BatchingType.DEFAULT
    chunking_enabled: bool = False
    chunk_max_message_size_bytes: int | None = None
    routing_mode: RoutingMode = RoutingMode.ROUND_ROBIN
    round_robin_partitions_max: int | None = None
    message_router: MessageRouter | None = None
    hashing_scheme: HashingScheme = HashingScheme.JAVA_STRING_HASH
    lazy_start_partitioned_producers: bool = False
    auto_update_partitions: bool = True
    auto_update_partitions_interval_s: float = 60.0
    access_mode: ProducerAccessMode = ProducerAccessMode.SHARED
    initial_subscription_name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    interceptors: Sequence[ProducerInterceptor] = ()
    schema: Schema | None = None
    """An argument of `create_producer` itself."""

    def __post_init__(self) -> None:
        text_or_none(self, "producer_name", "initial_subscription_name")
        not_negative(self, "send_timeout_s", "batching_max_publish_delay_s")
        positive(self, "auto_update_partitions_interval_s")
        whole(self, "max_pending_messages", "batching_max_messages", "batching_max_bytes", least=1)
        if self.initial_sequence_id is not None:
            whole(self, "initial_sequence_id", least=-1, most=_LONG_MAX)
        for name in ("chunk_max_message_size_bytes", "round_robin_partitions_max"):
            if getattr(self, name) is not None:
                whole(self, name, least=1)
        booleans(self, "batching_enabled", "chunking_enabled", "auto_update_partitions")
        booleans(self, "lazy_start_partitioned_producers")
        if self.chunking_enabled and self.batching_enabled:
            raise InvalidArgumentError("chunking_enabled needs batching_enabled=False")
        for name, kind in _PRODUCER_ENUMS:
            of_enum(self, name, kind)
        router: object = self.message_router
        if router is not None and not callable(router):
            raise InvalidArgumentError(f"message_router must be a function, not {router!r}")
        texts(self.properties, "properties")
        fits("properties", chain(*self.properties.items()))
        names = self.producer_name, self.initial_subscription_name
        fits("names and properties", names, (self.properties,), COMMAND_BYTES_MAX)
        instances(self.interceptors, "interceptors", ProducerInterceptor)
        check_sending(self.schema)
        self.check_crypto()


_PRODUCER_ENUMS: tuple[tuple[str, type[enum.Enum]], ...] = (
    ("compression_type", CompressionType),
    ("batching_type", BatchingType),
    ("routing_mode", RoutingMode),
    ("hashing_scheme", HashingScheme),
    ("access_mode", ProducerAccessMode),
)

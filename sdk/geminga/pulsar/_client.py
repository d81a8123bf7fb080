"""`Client` of the official client."""

from __future__ import annotations

from collections.abc import Callable
from re import Pattern
from typing import Any

import geminga.blocking
from geminga.errors import InvalidArgumentError
from geminga.pulsar import _keywords as keywords
from geminga.pulsar import _logs as logs
from geminga.pulsar._auth import Authentication
from geminga.pulsar._checks import check_function, check_type, check_type_or_none, closing_of
from geminga.pulsar._consumer import Consumer
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
from geminga.pulsar._errors import officially
from geminga.pulsar._ids import MessageId
from geminga.pulsar._listening import Turns
from geminga.pulsar._message import Message
from geminga.pulsar._policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    CryptoKeyReader,
)
from geminga.pulsar._producer import Producer
from geminga.pulsar._reader import Reader
from geminga.pulsar._service import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from geminga.pulsar._where import clusters_of, current_url, name_of
from geminga.pulsar.exceptions import AlreadyClosed
from geminga.pulsar.schema.schema import BytesSchema, Schema
from geminga.pulsar.tableview import TableView


class Client:
    """Creates producers, consumers, readers and table views, which share its connections."""

    def __init__(
        self,
        service_url: str | AutoClusterFailover | ServiceInfoProvider,
        authentication: Authentication | None = None,
        operation_timeout_seconds: int = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: Any = None,
        connection_timeout_ms: int = 10000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
    ) -> None:
        """`io_threads`, `concurrent_lookup_requests`, `log_conf_file_path` and `use_tls` have no
        effect; without `tls_trust_certs_file_path` the system's authorities are trusted. Without a
        `logger` the log goes to Python's logger "geminga".

        Raises ValueError for an invalid URL or type, InvalidConfiguration for an invalid option,
        and OperationNotSupported for a ServiceInfoProvider.
        """
        given = locals()
        self._clusters, changes, policy = clusters_of(service_url, given)
        options = keywords.client_keywords({**given, **changes})
        handler = logs.handler_of(logger)
        try:
            self._client = geminga.blocking.Client(
                self._clusters[0].service_url, failover=policy, **options
            )
        except InvalidArgumentError as error:
            logs.detach(handler)
            raise ValueError(str(error)) from error
        except BaseException:
            logs.detach(handler)
            raise
        self._handler = handler
        logs.attach(handler)
        self._turns = Turns(message_listener_threads)
        self._consumers: list[Consumer | Reader] = []
        self._is_closed = False

    @officially
    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema = BytesSchema(),
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Message, int], int] | None = None,
    ) -> Producer:
        """A producer on a topic. Keys choose partitions as in the official client (Boost's hash).

        `encryption_key` without a `crypto_key_reader` is refused, and a missing key raises
        CryptoError at once. A `message_router` is called in the client's own thread, with a message
        that has data, properties and keys. Raises ValueError and TypeError for wrong arguments,
        ProducerBusy, ProducerFenced, TopicNotFound and other PulsarExceptions.
        """
        options = keywords.producer_keywords(locals())
        made = Producer()
        made._producer = self._client.create_producer(topic, **options)
        made._schema = schema
        made._waits_for_room = block_if_queue_full
        return made

    @officially
    def subscribe(
        self,
        topic: str | list[str] | Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema = BytesSchema(),
        message_listener: Callable[[Consumer, Message], object] | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Consumer:
        """A consumer of a topic, of several, or of those whose names match a compiled pattern.

        A `message_listener(consumer, message)` is called in a thread; no more calls run at a time
        than the client has `message_listener_threads`. An error of it is logged, and its message
        stays unacknowledged. `key_shared_policy` and `dead_letter_policy` count for the types of
        subscription that they are made for. Raises ValueError and TypeError for wrong arguments,
        ConsumerBusy, TopicNotFound and other PulsarExceptions.
        """
        options = keywords.consumer_keywords(locals())
        if message_listener:
            check_function(message_listener, "message_listener")
        check_type(int, pattern_auto_discovery_period, "pattern_auto_discovery_period")
        made = Consumer()
        made._schema, made._type = schema, consumer_type
        made._has_queue = receiver_queue_size > 0
        made._topic = name_of(keywords.checked_topic(topic))
        made._forget = lambda: self._consumers.remove(made)
        # Before the listener's first call, which may decode with the schema, or close the consumer.
        schema.attach_client(self._client)
        self._consumers.append(made)
        try:
            made._consumer = self._client.subscribe(
                topic,
                subscription_name,
                message_listener=self._listener(made, message_listener),
                pattern_auto_discovery_period_s=pattern_auto_discovery_period,
                **options,
            )
        except BaseException:
            if made in self._consumers:  # its listener may have closed it already
                made._forget()
            raise
        return made

    @officially
    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema = BytesSchema(),
        reader_listener: Callable[[Reader, Message], object] | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """A reader that begins behind a message, or with it (`start_message_id_inclusive`).

        A `reader_listener(reader, message)` is called as a consumer's. Raises what `subscribe`
        does.
        """
        options = keywords.reader_keywords(locals())
        check_type(MessageId, start_message_id, "start_message_id")
        if reader_listener:
            check_function(reader_listener, "reader_listener")
        made = Reader()
        made._schema, made._topic = schema, name_of(topic)
        made._forget = lambda: self._consumers.remove(made)
        made._reader = self._client.create_reader(topic, start_message_id._place, **options)
        schema.attach_client(self._client)
        self._consumers.append(made)
        if reader_listener:
            made._listen(reader_listener, self._turns.lane())
        return made

    @officially
    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema = BytesSchema()
    ) -> TableView:
        """The latest value of each key of a topic; returns when all present messages are read."""
        check_type(str, topic, "topic")
        check_type_or_none(str, subscription_name, "subscription_name")
        check_type(Schema, schema, "schema")
        view = self._client.create_table_view(
            topic, schema=schema.schema_info().encoded(), subscription_name=subscription_name
        )
        return TableView(view, topic, subscription_name, schema)

    @officially
    def get_topic_partitions(self, topic: str) -> list[str]:
        """Full names of the topic's partitions; the topic itself if it has none."""
        check_type(str, topic, "topic")
        return self._client.list_partitions(topic)

    def get_service_info(self) -> ServiceInfo:
        """The cluster in use."""
        url = current_url(self._client)
        return next((each for each in self._clusters if each.service_url == url), self._clusters[0])

    def shutdown(self) -> None:
        """`close`, also for a client that is closed already: calls that wait in other threads raise
        AlreadyClosed.
        """
        if not self._is_closed:
            self.close()

    @officially
    def close(self) -> None:
        """Close all producers, consumers and readers, then the connections. Raises AlreadyClosed
        the second time.
        """
        if self._is_closed:
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the client is closed")
        with closing_of(self, [each._lane for each in self._consumers]):
            self._client.close()
        logs.detach(self._handler)

    def _listener(
        self, made: Consumer, listener: Callable[[Consumer, Message], object] | None
    ) -> Callable[[Any, Any], object] | None:
        if not listener:
            return None
        lane = made._lane = self._turns.lane()

        def call(inner: geminga.blocking.Consumer[Any], message: Any) -> None:
            made._consumer = inner
            lane.run(lambda: listener(made, made._made(message)))

        return call

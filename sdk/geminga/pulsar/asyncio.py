"""The official client's `pulsar.asyncio`: a thin layer over `geminga.aio`.

    client = Client("pulsar://localhost:6650")
    producer = await client.create_producer("my-topic")
    await producer.send(b"hello")
    await client.close()

Its one error is PulsarException.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import geminga.aio
import geminga.client
from geminga.errors import InvalidArgumentError
from geminga.pulsar import _client
from geminga.pulsar import _keywords as keywords
from geminga.pulsar import _logs as logs
from geminga.pulsar._aio import Consumer as Consumer
from geminga.pulsar._aio import Producer as Producer
from geminga.pulsar._aio import PulsarException as PulsarException
from geminga.pulsar._aio import Reader as Reader
from geminga.pulsar._aio import check_open, officially_async
from geminga.pulsar._checks import check_type, closing_of
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
from geminga.pulsar._ids import MessageId
from geminga.pulsar._message import Message
from geminga.pulsar._policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    CryptoKeyReader,
)
from geminga.pulsar._where import clusters_of, name_of
from geminga.pulsar.schema.schema import BytesSchema, Schema

__all__ = ["Client", "Consumer", "Producer", "PulsarException", "Reader"]


class Client:
    """Creates producers, consumers and readers, which share its connections. It may be used in one
    event loop after the other.
    """

    def __init__(self, service_url: Any, **kwargs: Any) -> None:
        """The options are those of `geminga.pulsar.Client`. Raises what that does."""
        bound = inspect.signature(_client.Client).bind(service_url, **kwargs)
        bound.apply_defaults()
        clusters, changes, policy = clusters_of(service_url, bound.arguments)
        options = keywords.client_keywords({**bound.arguments, **changes})
        self._handler = logs.handler_of(bound.arguments["logger"])
        self._options = {**options, "failover": policy}
        self._url = clusters[0].service_url
        try:
            geminga.client.connect(self._url, **self._options)
        except InvalidArgumentError as error:
            logs.detach(self._handler)
            raise ValueError(str(error)) from error
        except BaseException:
            logs.detach(self._handler)
            raise
        logs.attach(self._handler)
        self._made: geminga.aio.Client | None = None
        self._is_closed = False

    def _open(self) -> geminga.aio.Client:
        """The client, made on first use, in a loop."""
        check_open(self._is_closed)
        if self._made is None:
            self._made = geminga.aio.Client(self._url, **self._options)
        return self._made

    @officially_async
    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
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
        """A producer on a topic; see `geminga.pulsar.Client.create_producer`. `send` waits for
        room, so `block_if_queue_full` has no effect.
        """
        given = {**locals(), "schema": schema or BytesSchema()}
        options = keywords.producer_keywords(given)
        return Producer(await self._open().create_producer(topic, **options), given["schema"])

    @officially_async
    async def subscribe(
        self,
        topic: str | list[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
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
        is_pattern_topic: bool = False,
    ) -> Consumer:
        """A consumer of a topic, of several, or of those that a pattern matches
        (`is_pattern_topic`); see `geminga.pulsar.Client.subscribe`.
        """
        given = {**locals(), "schema": schema or BytesSchema()}
        if not isinstance(topic, str | list) or (is_pattern_topic and not isinstance(topic, str)):
            raise ValueError("topic must be a text, or a list of texts without is_pattern_topic")
        where = re.compile(str(topic)) if is_pattern_topic else keywords.checked_topic(topic)
        options = keywords.consumer_keywords(given)
        client = self._open()
        made = Consumer(
            await client.subscribe(where, subscription_name, **options), given["schema"]
        )
        made._topic, made._type, made._client = name_of(where), consumer_type, client
        return made

    @officially_async
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """A reader that begins behind a message, or with it (`start_message_id_inclusive`)."""
        given = {**locals(), "schema": schema or BytesSchema()}
        options = keywords.reader_keywords(given)
        check_type(MessageId, start_message_id, "start_message_id")
        client = self._open()
        reader = await client.create_reader(topic, start_message_id._place, **options)
        made = Reader(reader, given["schema"])
        made._topic, made._client = name_of(topic), client
        return made

    def shutdown(self) -> None:
        """Begin to close, without waiting for the end."""
        made, self._made = self._made, None
        if made is not None:
            made._session.portal.post(made._session.begin_closing)
        self._is_closed = True
        logs.detach(self._handler)

    @officially_async
    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Full names of the topic's partitions; the topic itself if it has none."""
        check_type(str, topic, "topic")
        return await self._open().list_partitions(topic)

    @officially_async
    async def close(self) -> None:
        """Close all producers, consumers and readers, then the connections. Raises PulsarException
        the second time.
        """
        check_open(self._is_closed)
        with closing_of(self):
            if self._made is not None:
                await self._made.aclose()
        logs.detach(self._handler)

"""The health check: a broker is healthy if it can store a message (`brokers/health`, OP-08)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from geminga_broker.cluster.records import ResourceExists
from geminga_broker.errors import BrokerError
from geminga_broker.service import BrokerService
from geminga_broker.topic.api import ProducerRequest, PublishItem
from geminga_broker.topic.moving import Moving
from geminga_protocol.buffers import Buffer
from geminga_protocol.frames import FrameReader
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.clock import wall_clock_ms

HEALTH_S = 10.0
"""Timeout of the message."""

CHECK_KEPT_S = 1.0
"""How long a result is cached for unauthenticated clients."""

_PRODUCER = "healthcheck"


class _Probe:
    """Replaces a client's connection, and waits for the first receipt."""

    address = "health check"
    client_version = ""
    protocol_version = 0
    supports_broker_entry_metadata = False
    principal = None
    writable = True

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.stored = False
        self._reader = FrameReader()

    def write(self, *buffers: Buffer) -> None:
        for frame in self._reader.feed(b"".join(buffers)):
            self.stored = frame.type == BaseCommand.Type.SEND_RECEIPT
            self.answered.set()

    def write_now(self, *buffers: Buffer) -> None:
        self.write(*buffers)

    def on_writable(self, callback: Callable[[], None]) -> None:
        callback()

    async def is_alive(self) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    def drop_producer(self, producer_id: int) -> None:
        self.answered.set()

    def drop_consumer(self, consumer_id: int) -> None:
        self.answered.set()

    def move_producer(self, producer_id: int, moving: Moving) -> None:
        self.answered.set()

    def move_consumer(self, consumer_id: int, moving: Moving) -> None:
        self.answered.set()


class SharedCheck:
    """The check for unauthenticated clients: stores at most one message in `CHECK_KEPT_S`."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._lock = trio.Lock()
        self._kept_until_s = float("-inf")
        self._failure: Exception | None = None

    async def check(self) -> None:
        """Raises the error of `check_health`."""
        async with self._lock:
            if trio.current_time() >= self._kept_until_s:
                self._failure = None
                try:
                    await check_health(self._service)
                except Exception as error:
                    self._failure = error
                self._kept_until_s = trio.current_time() + CHECK_KEPT_S
        if self._failure is not None:
            raise self._failure


async def check_health(service: BrokerService) -> None:
    """Publish to the heartbeat namespace `pulsar/{broker id}` and wait for the receipt. Raises
    BrokerError if it is refused, trio.TooSlowError if it takes longer than `HEALTH_S`.
    """
    try:
        await _check(service)
    except Exception:
        service.health = 0
        raise
    service.health = 1


async def _check(service: BrokerService) -> None:
    namespace = f"pulsar/{service.addresses.broker_id}"
    with trio.fail_after(HEALTH_S):
        if not await service.namespaces.exists(namespace):
            cluster = service.config.network.cluster_name
            try:
                await service.namespaces.create(namespace, bundles=1, clusters=(cluster,))
            except ResourceExists:
                pass
        name = TopicName.parse(f"persistent://{namespace}/healthcheck")
        topic = await service.topics.get(name, create=True, by_hand=True)
        probe = _Probe()
        producer_name = f"{_PRODUCER}-{service.producer_names.next()}"
        producer = await topic.add_producer(ProducerRequest(probe, 0, producer_name))
        try:
            metadata = MessageMetadata(
                producer_name=producer_name, sequence_id=0, publish_time=wall_clock_ms()
            )
            producer.publish([PublishItem(0, memoryview(build(metadata, b"ok")))])
            await probe.answered.wait()
        finally:
            producer.close()
    if not probe.stored:
        raise BrokerError(ServerError.PersistenceError, "the health check's message wasn't stored")

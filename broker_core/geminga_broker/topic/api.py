"""The interface between sessions and topics (spec BR-08, BR-20, BR-30, BR-36)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.subscription.broker_limit import BrokerUnackedLimit
from geminga_broker.subscription.catch_up import CatchUp
from geminga_broker.topic.moving import Moving
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandSubscribe,
    KeySharedMode,
    ProducerAccessMode,
)
from geminga_runtime.clock import wall_clock_ms


class ClientConnection(Protocol):
    """One client's connection, for producers and consumers. All but `is_alive` is synchronous."""

    @property
    def address(self) -> str:
        """The peer, `host:port`."""

    @property
    def client_version(self) -> str:
        """The version in CONNECT."""

    @property
    def protocol_version(self) -> int:
        """The lower one of the client's and ours."""

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether entries may be sent with their broker entry metadata (PIP-90)."""

    @property
    def principal(self) -> str | None:
        """Role of the client, None without authentication."""

    @property
    def writable(self) -> bool:
        """Whether less than the high mark is queued. A dispatch round starts only then."""

    def write(self, *buffers: Buffer) -> None:
        """Queue whole frames. Never blocks; does nothing once the connection is closed."""

    def write_now(self, *buffers: Buffer) -> None:
        """As `write`, but send at once if nothing is queued: for frames that a client waits for."""

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call once when the queued bytes fall under the low mark; at once if `writable`, or
        closed.
        """

    async def is_alive(self) -> bool:
        """Ping the peer; a peer that doesn't answer in time is disconnected."""

    def drop_producer(self, producer_id: int) -> None:
        """The broker closed this producer: send CLOSE_PRODUCER and forget it."""

    def drop_consumer(self, consumer_id: int) -> None:
        """The broker closed this consumer: send CLOSE_CONSUMER and forget it."""

    def move_producer(self, producer_id: int, moving: Moving) -> None:
        """As `drop_producer`, but CLOSE_PRODUCER waits until the topic's new broker is known."""

    def move_consumer(self, consumer_id: int, moving: Moving) -> None:
        """As `drop_consumer`, but CLOSE_CONSUMER waits until the topic's new broker is known."""


SubType = CommandSubscribe.SubType
InitialPosition = CommandSubscribe.InitialPosition


@dataclass(frozen=True, slots=True)
class TopicEnvironment:
    """A topic's environment: `nursery` runs its pumps (which never raise), `now_ms` is
    the wall clock. Constructors: `PersistentTopic(TopicName, ManagedLedger, TopicEnvironment,
    TopicOptions)`, `NonPersistentTopic(TopicName, TopicEnvironment, TopicOptions)`.
    """

    nursery: trio.Nursery
    now_ms: Callable[[], int] = wall_clock_ms
    unacked_limit: BrokerUnackedLimit | None = None
    """Shared by all topics of a broker."""
    catch_up: CatchUp = field(default_factory=CatchUp)
    """Shared by all topics of a broker."""


P = TypeVar("P")


class PublishItem(NamedTuple):
    """One SEND: a message or a batch. `payload` is all data after the command, with a verified
    checksum; the topic copies it before `publish` returns.
    """

    sequence_id: int
    payload: memoryview
    messages: int = 1
    highest_sequence_id: int = 0
    is_chunk: bool = False


@dataclass(frozen=True, slots=True)
class ProducerRequest(Generic[P]):
    """PRODUCER, after names are resolved.

    `producer_name` is never empty: the session generates one if the client gave none
    (`user_provided_name` False). `publish_pending` is called once a run with the number and bytes
    of SENDs that were received (positive) or answered (negative), so that the session can stop
    reading. `throttle` is called when a rate limit is reached, with the seconds for which to stop
    reading. `on_ready` is called once if the producer had to wait for exclusive access; the session
    then sends the second PRODUCER_SUCCESS. `on_refused` is called instead if it was fenced.
    `schema_version` is for stats only.
    """

    connection: ClientConnection
    producer_id: int
    producer_name: str
    epoch: int = 0
    user_provided_name: bool = True
    access_mode: int = ProducerAccessMode.Shared
    topic_epoch: int | None = None
    encrypted: bool = False
    schema_version: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)
    publish_pending: Callable[[int, int], None] = lambda messages, size: None
    throttle: Callable[[float], None] = lambda pause_s: None
    on_ready: Callable[[P], None] = lambda producer: None
    on_refused: Callable[[P, BrokerError], None] = lambda producer, error: None


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """A consumer's policy of Key_Shared; `ranges` (inclusive) are for STICKY."""

    mode: int = KeySharedMode.AUTO_SPLIT
    ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order: bool = False


class LastMessage(NamedTuple):
    """The response to GET_LAST_MESSAGE_ID. Entry id -1: the topic is empty; batch index -1: no
    batch.
    """

    position: Position
    batch_index: int
    partition: int
    mark_delete: Position | None

"""Sending messages (spec SDK-01 to SDK-04, SDK-09)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TypedDict, Unpack

import trio

from geminga._core import Core, wall_clock_ms
from geminga._encode import LOCAL_CLUSTER_ONLY, Extras
from geminga._partitions import Partitions
from geminga._receipt import Receipt
from geminga._statistics import ProducerStatistics
from geminga._together import ABANDON_TIMEOUT_S, together
from geminga.errors import InvalidArgument
from geminga.options import ProducerOptions
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName

BYTES_BETWEEN_CHECKPOINTS = 128 * 1024
"""`send_soon` lets the event loop turn after that much, a message counting as 1 KiB at least."""


class MessageKeywords(TypedDict, total=False):
    """What a message may have beside its payload. Times are in ms since 1970."""

    properties: Mapping[str, str] | None
    partition_key: str | None
    ordering_key: bytes | str | None
    event_timestamp: int | None
    deliver_at: int | None
    deliver_after: datetime.timedelta | None
    replication_clusters: Sequence[str] | None
    disable_replication: bool


class Producer:
    """Sends messages to one topic, over all its partitions. Made by `Client.create_producer`.

    `send` waits for the receipt. `send_soon` and `send_nowait` only hand the message over and
    answer a `Receipt`; messages of one task arrive in the order in which they were handed over.
    Nothing that was acknowledged is lost; when the connection is lost, everything pending is sent
    again in order.
    """

    def __init__(
        self, core: Core, topic: TopicName, partitions: int, options: ProducerOptions
    ) -> None:
        self._core = core
        self._topic = topic
        self._options = options
        self._partitions = Partitions(core, topic, partitions, options)
        self._parts = self._partitions.parts
        self._choose = self._partitions.choose
        self._since_checkpoint = 0

    def __repr__(self) -> str:
        return f"<Producer {self.producer_name!r} of {self._topic}>"

    @property
    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return str(self._topic)

    @property
    def producer_name(self) -> str:
        """The name that the program gave, or the broker."""
        return next(filter(None, (part.name for part in self._parts)), "")

    @property
    def is_connected(self) -> bool:
        """Whether the brokers of all partitions that were started know the producer now."""
        return all(part.is_connected for part in self._partitions.started)

    @property
    def last_sequence_id(self) -> int:
        """Highest sequence id that was confirmed, or that the broker remembers of this name; -1 for
        none.
        """
        return max(part.outbox.last_sequence_id for part in self._parts)

    @property
    def pending_messages(self) -> int:
        """Messages without receipt yet."""
        return sum(part.outbox.pending_messages for part in self._parts)

    async def _start(self) -> None:
        """Until all partitions know it. Raises the first GemingaError; then none is left over."""
        try:
            await self._partitions.start()
        except BaseException:
            with trio.move_on_after(ABANDON_TIMEOUT_S, shield=True):
                await self.aclose()
            raise

    async def send(
        self, data: bytes, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> MessageId:
        """Send a message and wait until the broker has stored it; answers its id.

        Waits while `max_pending_messages` or the client's memory limit are used up. Cancelling it
        doesn't take the message back. Raises InvalidArgument, MessageTooBig, Timeout (send
        timeout), TopicTerminated, ProducerFenced, QuotaExceeded, AlreadyClosed and other
        GemingaErrors.
        """
        receipt = await self.send_soon(data, sequence_id=sequence_id, **described)
        return await receipt.wait()

    async def send_soon(
        self, data: bytes, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """Hand a message over for sending; wait only while there is no room for it.

        It suspends when there is no room and after every 128 KiB or so, not at each call. Raises
        what `send` does at the call; what happens to the message later stands in the receipt.
        """
        extras = _extras(described) if described else None
        if data.__class__ is not bytes or sequence_id is not None:
            data = _payload(data, sequence_id)
        size_bytes = len(data)
        self._since_checkpoint += size_bytes if size_bytes > 1024 else 1024
        if self._since_checkpoint >= BYTES_BETWEEN_CHECKPOINTS:
            self._since_checkpoint = 0
            await trio.lowlevel.checkpoint()
        part = self._parts[0] if len(self._parts) == 1 else self._choose(data, extras)
        if not part.has_room():
            await part.wait_for_room(size_bytes)
        return part.add(data, extras, sequence_id)

    def send_nowait(
        self, data: bytes, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """The same without ever waiting. Raises ProducerQueueFull or MemoryLimitExceeded too.

        Nothing is written before the event loop turns.
        """
        extras = _extras(described) if described else None
        return self._send_checked(_payload(data, sequence_id), extras, sequence_id)

    def _send_checked(self, data: bytes, extras: Extras | None, sequence_id: int | None) -> Receipt:
        """The same with arguments that were looked at."""
        part = self._parts[0] if len(self._parts) == 1 else self._choose(data, extras)
        if not part.has_room():
            part.check_room(len(data))
        return part.add(data, extras, sequence_id)

    async def _send_checked_soon(
        self, data: bytes, extras: Extras | None, sequence_id: int | None
    ) -> Receipt:
        """The same, waiting for room."""
        part = self._choose(data, extras)
        await part.wait_for_room(len(data))
        return part.add(data, extras, sequence_id)

    def statistics(self) -> ProducerStatistics:
        """What has been sent so far, over all partitions; costs nothing to keep."""
        parts = self._parts
        return ProducerStatistics(
            messages_acknowledged=sum(part.counts.messages for part in parts),
            bytes_acknowledged=sum(part.counts.size_bytes for part in parts),
            entries_acknowledged=sum(part.counts.entries for part in parts),
            messages_failed=sum(part.counts.failed for part in parts),
            messages_pending=sum(part.outbox.pending_messages for part in parts),
            bytes_pending=sum(part.outbox.pending_bytes for part in parts),
            partitions_connected=sum(part.is_connected for part in parts),
        )

    async def flush(self) -> None:
        """Send what is batched and wait until all that was handed over before has its receipt.

        Raises what the newest of these messages failed with, if it did.
        """
        await together(part.flush for part in self._partitions.started)

    async def aclose(self) -> None:
        """Flush, and leave the topic. Idempotent; pending messages that can't be sent fail with
        AlreadyClosed.
        """
        self._core.open.pop(self, None)
        self._partitions.stop()
        await together(part.aclose for part in self._parts)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _payload(data: object, sequence_id: int | None) -> bytes:
    if sequence_id is not None and (not isinstance(sequence_id, int) or sequence_id < 0):
        raise InvalidArgument(f"sequence_id must be a number from 0 on, not {sequence_id!r}")
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    hint = "; encode the text first" if isinstance(data, str) else ""
    raise InvalidArgument(f"data must be bytes, not {type(data).__name__}{hint}")


def _extras(described: MessageKeywords) -> Extras | None:
    """Check what describes a message. Raises InvalidArgument, naming the argument."""
    unknown = described.keys() - MessageKeywords.__annotations__.keys()
    if unknown:
        raise InvalidArgument(f"unknown argument {sorted(unknown)[0]!r}")
    properties = described.get("properties")
    if properties is not None:
        for key, value in properties.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidArgument(f"properties must be texts, not {key!r}: {value!r}")
    partition_key = described.get("partition_key")
    if partition_key is not None and not isinstance(partition_key, str):
        raise InvalidArgument(f"partition_key must be a text, not {partition_key!r}")
    ordering_key = described.get("ordering_key")
    if isinstance(ordering_key, str):
        ordering_key = ordering_key.encode()
    elif ordering_key is not None and not isinstance(ordering_key, bytes):
        raise InvalidArgument(f"ordering_key must be bytes or a text, not {ordering_key!r}")
    clusters = tuple(described.get("replication_clusters") or ())
    if described.get("disable_replication"):
        clusters = LOCAL_CLUSTER_ONLY
    return Extras(
        properties,
        partition_key,
        ordering_key,
        _time_ms("event_timestamp", described.get("event_timestamp")),
        _deliver_at_ms(described),
        clusters,
    )


def _deliver_at_ms(described: MessageKeywords) -> int | None:
    after = described.get("deliver_after")
    if after is None:
        return _time_ms("deliver_at", described.get("deliver_at"))
    if described.get("deliver_at") is not None:
        raise InvalidArgument("deliver_at and deliver_after can't both be given")
    if not isinstance(after, datetime.timedelta) or after < datetime.timedelta(0):
        raise InvalidArgument(f"deliver_after must be a timedelta from 0 on, not {after!r}")
    return wall_clock_ms() + int(after / datetime.timedelta(milliseconds=1))


def _time_ms(name: str, value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidArgument(f"{name} must be ms since 1970, not {value!r}")
    return value

"""A registered producer: entries in, receipts out in order (spec BR-20, BR-24)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Protocol

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import (
    AppendDone,
    LogClosed,
    LogError,
    LogFenced,
    LogTerminated,
    LogWriteFailed,
)
from geminga_broker.metrics.rates import Rates, utc_now
from geminga_broker.policies.model import TopicOptions
from geminga_broker.policies.rate_limit import RateLimit, take_all
from geminga_broker.topic.admission import Admission, admitted
from geminga_broker.topic.api import ProducerRequest, PublishItem
from geminga_broker.topic.deduplication import Deduplication, Duplicate, Fate
from geminga_broker.topic.moving import Moving, drop_producer
from geminga_broker.topic.publish_run import JoinedSents, PendingRuns, PublishRun, Sent
from geminga_broker.topic.states import PRODUCER_TRANSITIONS, ProducerEvent, ProducerState
from geminga_broker.topic.stats import PublisherStats
from geminga_protocol.buffers import Buffer
from geminga_protocol.commands.producing import send_error
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode, ServerError
from geminga_protocol.receipts import joined_receipts, send_receipts

_log = logging.getLogger(__name__)

ANSWERING = (ProducerState.OPEN, ProducerState.CLOSING)
"""In these states receipts are sent."""

WARNING_PERIOD_S = 10.0
"""Interval of logging a producer whose publishes keep failing."""


class PublishTarget(Protocol):
    """The topic, as its producers use it."""

    name: str
    options: TopicOptions
    entry_step: int
    """The step of entry ids between receipts: 1, or 0 if nothing is stored."""
    deduplication: Deduplication | None
    """Stored sequence ids, if deduplication is on."""
    admission: Admission | None
    """A check of each item; None without checks."""
    moving: Moving | None
    publish_limits: tuple[RateLimit, ...]
    publishes_limited: int
    """How often a producer was throttled."""

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """Append entries; `done` is called in order."""

    def remove_producer(self, producer: Producer) -> None:
        """Forget a closed producer."""

    def publish_failed(self, error: LogError) -> None:
        """Called once per failed run."""


class Producer:
    """One producer of one connection. A wait for access changes `topic_epoch` and `state`."""

    __slots__ = (
        "_duplicates", "_finishing", "_pending", "_target", "_warn_after_s",
        "_write", "connected_since", "connection", "epoch", "name",
        "producer_id", "rates", "request", "state", "topic_epoch",
    )  # fmt: skip

    def __init__(self, request: ProducerRequest[Producer], target: PublishTarget) -> None:
        self.request = request
        self.connection = request.connection
        self.producer_id = request.producer_id
        self.name = request.producer_name
        self.epoch = request.epoch
        self.topic_epoch: int | None = None
        self.state = ProducerState.OPEN
        self.rates = Rates(trio.current_time())
        self.connected_since = utc_now()
        self._target = target
        self._write = request.connection.write
        # Runs without all receipts, in order; the session bounds them through `publish_pending`.
        self._pending = PendingRuns()
        self._duplicates = 0  # pending duplicates
        self._warn_after_s = 0.0
        # Called after the last receipt; empty unless the client closes.
        self._finishing: list[Callable[[], None]] = []

    def enter(self, event: ProducerEvent) -> None:
        """Change the state by the event."""
        self.state = PRODUCER_TRANSITIONS[event][self.state]

    @property
    def ready(self) -> bool:
        """Whether it doesn't wait for exclusive access."""
        return self.state is not ProducerState.WAITING

    @property
    def closed(self) -> bool:
        """Whether it left the topic."""
        return self.state in (ProducerState.CLOSED, ProducerState.BROKEN)

    def publish(self, items: Sequence[PublishItem]) -> None:
        """Append; receipts and SEND_ERRORs are sent in order (BR-24)."""
        if self.state is not ProducerState.OPEN:
            return
        encrypted, admission = self._target.options.encryption_required, self._target.admission
        if encrypted or admission is not None:
            items = admitted(items, encrypted, admission, self._send_error)
        if self._target.deduplication is not None:
            self._publish_once(items, self._target.deduplication)
            return
        size = messages = 0
        entries: list[tuple[Buffer, int]] = []
        sent: list[Sent] = []
        for sequence_id, payload, count, highest, _ in items:
            if highest and highest < sequence_id:
                self._refuse_order(sequence_id)
                continue
            bytes_here = len(payload)
            size += bytes_here
            messages += count
            entries.append((payload, count))
            sent.append((sequence_id, highest, bytes_here))
        if not entries:
            return
        self._submit(entries, PublishRun(sent, size), messages)

    def publish_joined(self, first_sequence_id: int, payloads: Sequence[memoryview]) -> None:
        """As `publish`, for plain messages with consecutive sequence ids, one in each entry."""
        target = self._target
        if (
            self.state is not ProducerState.OPEN
            or target.deduplication is not None
            or target.admission is not None
            or target.options.encryption_required
        ):
            self.publish([PublishItem(first_sequence_id + n, p) for n, p in enumerate(payloads)])
            return
        sizes = list(map(len, payloads))
        run = PublishRun(JoinedSents(first_sequence_id, sizes), sum(sizes))
        self._submit(list(zip(payloads, repeat(1))), run, len(sizes))

    def _submit(
        self, entries: Sequence[tuple[Buffer, int]], run: PublishRun, messages: int
    ) -> None:
        size = run.size_bytes
        self._pending.append(run)
        self.rates.add(messages, size)
        self.request.publish_pending(len(entries), size)
        if self._target.publish_limits:
            self._throttle(messages, size)
        self._append(entries, run)

    def _append(self, entries: Sequence[tuple[Buffer, int]], run: PublishRun) -> None:
        try:
            self._target.append(entries, partial(self._done, run))
        except LogError as error:
            self._done(run, EARLIEST, len(entries), error)

    def _throttle(self, messages: int, size_bytes: int) -> None:
        """Pause the connection if the topic or the broker is above a rate limit (BR-22)."""
        target = self._target
        pause_s = take_all(target.publish_limits, messages, size_bytes, trio.current_time())
        if pause_s:
            target.publishes_limited += 1
            self.request.throttle(pause_s)

    def _publish_once(self, items: Sequence[PublishItem], known: Deduplication) -> None:
        """Append new items; the receipts of duplicates follow in order."""
        size_new = messages = 0
        entries: list[tuple[Buffer, int]] = []
        all_sent: list[Sent] = []
        size = 0
        for item in items:
            if item.highest_sequence_id and item.highest_sequence_id < item.sequence_id:
                self._refuse_order(item.sequence_id)
                continue
            sent = known.take(self.name, item)
            all_sent.append(sent)
            size += sent[2]
            if type(sent) is Duplicate:
                self._duplicates += 1
            else:
                size_new += sent[2]
                messages += item.messages
                entries.append((item.payload, item.messages))
        run = PublishRun(all_sent, size)
        if all_sent:
            self._pending.append(run)
            self.request.publish_pending(len(all_sent), size)
        if entries:
            self.rates.add(messages, size_new)
            if self._target.publish_limits:
                self._throttle(messages, size_new)
            self._append(entries, run)
        self.answer_duplicates()

    def _refuse_order(self, sequence_id: int) -> None:
        text = "Invalid lowest or highest sequence id"
        self._send_error(sequence_id, ServerError.MetadataError, text)

    def _done(self, run: PublishRun, first: Position, count: int, error: LogError | None) -> None:
        """The log's callback: `count` entries of a run are durable, or failed."""
        if error is not None:
            self._failed(count, error)
            return
        if self._target.deduplication is not None or self._duplicates:
            self._done_once(first, count)
            return
        pending = self._pending
        assert pending[0] is run, "runs are answered in order"
        sent: Sequence[Sent] = run.sent
        size = run.size_bytes
        if count == len(sent):
            pending.popleft()
        else:
            sent = [pending.next_sent() for _ in range(count)]
            size = sum([size_bytes for _, _, size_bytes in sent])
        if self.state in ANSWERING:
            step = self._target.entry_step
            if type(sent) is JoinedSents and step:
                receipts = joined_receipts(self.producer_id, sent.first, count, *first)
            else:
                receipts = send_receipts(self.producer_id, sent, *first, step)
            # If nothing else is pending, the client may be waiting for this receipt.
            (self._write if pending else self.connection.write_now)(receipts)
        self.request.publish_pending(-count, -size)
        if self.state is ProducerState.CLOSING and not pending:
            self.close()

    def _done_once(self, first: Position, count: int) -> None:
        """One run is durable; send also the receipts of duplicates between its entries: their
        originals were appended before, so they are durable too.
        """
        stored: list[Sent] = []
        start = size = dropped = 0
        while len(stored) < count:
            sent = self._pending.next_sent()
            size += sent[2]
            if type(sent) is not Duplicate:
                stored.append(sent)
                continue
            dropped += 1
            self._receipts(stored[start:], first, start)
            start = len(stored)
            self._receipts([sent], EARLIEST, 0)
        self._receipts(stored[start:], first, start)
        self._duplicates -= dropped
        self.request.publish_pending(-count - dropped, -size)
        known = self._target.deduplication
        if known is not None:
            last = Position(first.ledger_id, first.entry_id + count - 1)
            run = () if self.state is ProducerState.BROKEN else stored
            known.record(self.name, run, last, count)
        self.answer_duplicates()

    def _receipts(self, run: Sequence[Sent], first: Position, offset: int) -> None:
        if run and self.state in ANSWERING:
            ledger_id, entry_id = first
            step = self._target.entry_step
            receipts = send_receipts(self.producer_id, run, ledger_id, entry_id + offset, step)
            self._write(receipts)

    def answer_duplicates(self) -> None:
        """Send receipts of the next duplicates whose originals are stored. If an original is lost,
        or deduplication was turned off, so that nobody knows, the client must reconnect and resend.
        """
        known, pending = self._target.deduplication, self._pending
        while pending and type(sent := pending.head) is Duplicate:
            fate = Fate.LOST if known is None else known.fate(self.name, sent)
            if fate is Fate.PENDING:
                assert known is not None
                known.waiting[self.answer_duplicates] = None
                return
            self._pending.next_sent()
            self._duplicates -= 1
            self.request.publish_pending(-1, -sent[2])
            if fate is Fate.LOST:
                self.disconnect()
            self._receipts([sent], EARLIEST, 0)
        if known is not None:
            known.waiting.pop(self.answer_duplicates, None)
        if self.state is ProducerState.CLOSING and not pending:
            self.close()

    def _failed(self, count: int, error: LogError) -> None:
        code = ServerError.PersistenceError
        if isinstance(error, LogTerminated):
            code = ServerError.TopicTerminatedError
        # An unloaded topic closes its producers, which then resend: don't send errors.
        silent = self.closed or isinstance(error, LogFenced | LogClosed)
        if isinstance(error, LogWriteFailed):
            # The client will resend these entries: later ones must not be stored before them, as
            # deduplication would then drop these. (PersistentTopic.addFailed disconnects too.)
            silent = True
            self.disconnect()
            self.enter(ProducerEvent.WRITE_FAILED)
        size = answered = 0
        while count:
            sent = self._pending.next_sent()
            size += sent[2]
            answered += 1
            if type(sent) is Duplicate:
                self._duplicates -= 1
                continue
            count -= 1
            if not silent:
                self._send_error(sent[0], code, str(error))
        self._warn(error)
        self.request.publish_pending(-answered, -size)
        if (known := self._target.deduplication) is not None:
            known.failed(self.name)
        self.answer_duplicates()  # of what has failed: nothing else would look at them
        self._target.publish_failed(error)
        if self.state is ProducerState.CLOSING and not self._pending:
            self.close()

    def _warn(self, error: LogError) -> None:
        """Log the failure, but not each one; failed writes the log itself tells, once for all."""
        now_s = trio.current_time()
        if now_s >= self._warn_after_s and not isinstance(error, LogWriteFailed):
            self._warn_after_s = now_s + WARNING_PERIOD_S
            _log.warning("%s: publishing by %s failed: %s", self._target.name, self.name, error)

    def _send_error(self, sequence_id: int, code: ServerError, text: str) -> None:
        self._write(send_error(self.producer_id, sequence_id, code, text))

    def finish(self, closed: Callable[[], None]) -> None:
        """CLOSE_PRODUCER: refuse further items, wait for the pending receipts, then leave the topic
        and call `closed` (Producer.close).
        """
        self._finishing.append(closed)
        self.enter(ProducerEvent.FINISH)
        if self.closed or not self._pending:
            self.close()

    def close(self) -> None:
        """Leave the topic now, without further receipts: the connection is lost, or the broker
        closes the producer. Idempotent.
        """
        if not self.closed:
            self.enter(ProducerEvent.CLOSE)
            self._target.remove_producer(self)
        waiting, self._finishing = self._finishing, []
        for closed in waiting:
            closed()

    def disconnect(self) -> None:
        """Close from the broker's side. Idempotent."""
        if not self.closed:
            # First: a client that waits for its own close must see that receipts are missing.
            drop_producer(self.connection, self.producer_id, self._target.moving)
            self.close()

    def refuse(self, error: BrokerError) -> None:
        """Close a producer that waited for exclusive access, with an error. Idempotent."""
        if not self.closed:
            self.request.on_refused(self, error)
            self.close()

    @property
    def last_sequence_id(self) -> int:
        """The highest stored sequence id of the name; -1 without deduplication."""
        known = self._target.deduplication
        return -1 if known is None else known.stored(self.name)

    def stats(self) -> PublisherStats:
        """Statistics for `/stats`."""
        rate, throughput = self.rates.per_second(trio.current_time())
        mode = ProducerAccessMode.ValueType(self.request.access_mode)
        return PublisherStats(
            producer_id=self.producer_id,
            producer_name=self.name,
            access_mode=ProducerAccessMode.Name(mode),
            msg_rate_in=rate,
            msg_throughput_in=throughput,
            average_msg_size=throughput / rate if rate else 0.0,
            address=self.connection.address,
            connected_since=self.connected_since,
            client_version=self.connection.client_version,
            metadata=dict(self.request.metadata),
        )

    def __repr__(self) -> str:
        return f"<Producer {self.name} of {self._target.name}>"

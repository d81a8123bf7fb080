"""Sends one consumer's acknowledgements in groups, and requests the redelivery of negatively
acknowledged messages (spec SDK-22, SDK-23).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from geminga._acknowledging.acks import AckGroup, AckTracker, PassingAcks, Position
from geminga._acknowledging.nacks import NegativeAcks
from geminga._acknowledging.unacked import AckTimeouts, Unacked
from geminga._connection.alarm import Alarm
from geminga._connection.connection import Connection, error_name
from geminga._connection.core import Core
from geminga._consuming.statistics import ConsumerCounts
from geminga._entries.chunks import Chunks
from geminga._entries.entry import Entry
from geminga.errors import AlreadyClosedError, GemingaError, OperationTimeoutError, from_broker
from geminga.options import ConsumerOptions
from geminga_protocol.acks import ack_of_run
from geminga_protocol.commands import consuming as commands
from geminga_protocol.encode import individual_acks
from geminga_protocol.message_id import MessageId
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.waiters import Promise


@dataclass(frozen=True)
class AckTarget:
    """The consumer of the acknowledgements. `redeliver` is called with entries whose delay after a
    negative acknowledgement, or ack timeout, has passed.
    """

    topic: str
    partition: int
    consumer_id: int
    counts: ConsumerCounts
    redeliver: Callable[[list[Position]], None]


class Acknowledger:
    """Acknowledgements of one consumer; they wait here while it isn't connected."""

    def __init__(self, core: Core, target: AckTarget, options: ConsumerOptions) -> None:
        self._core = core
        self._target = target
        self.counts = target.counts
        self._options = options
        passing = target.topic.startswith("non-persistent:")
        tracker = PassingAcks if passing else AckTracker
        self.acks = tracker(batch_index_ack=options.batch_index_ack_enabled)
        # If more messages of a batch are unacknowledged, an acknowledgement sends nothing.
        self._left_quiet = math.inf if options.batch_index_ack_enabled else 1
        self._nacks = NegativeAcks(
            options.negative_ack_redelivery_delay_s, options.negative_ack_backoff
        )
        self.chunks = Chunks(
            options.max_pending_chunked_messages,
            options.expire_time_of_incomplete_chunked_message_s,
            options.auto_ack_oldest_chunked_message_on_queue_full,
            wall_clock_ms,
            gets_all=options.durable and not options.consumer_type.is_shared,
        )
        """Incomplete messages, and the chunks of complete ones."""
        timeouts = None
        if options.ack_timeout_s:
            timeouts = AckTimeouts(options.ack_timeout_s, options.ack_timeout_backoff)
        policy = options.dead_letter_policy
        self.unacked: Unacked | None = None
        """None if no option needs it."""
        if timeouts is not None or policy is not None:
            self.unacked = Unacked(timeouts, None if policy is None else policy.max_redeliver_count)
        self._group: Promise[None] = Promise()
        self._unanswered: dict[Promise[None], int] = {}
        """For each group, the number of its commands without a receipt."""
        self._waiting_max = options.ack_grouping_max if options.ack_grouping_time_s else 1
        self._noted = 0
        """Upper bound of the positions waiting to be sent."""
        self._due_s = math.inf
        self._alarm = Alarm(self._on_alarm)
        self._connection: Connection | None = None

    async def run(self) -> None:
        """Run the timers, until `stop`."""
        await self._alarm.run()

    def stop(self) -> None:
        """Send nothing any more."""
        self._alarm.stop()
        self._connection = None
        self._group.reject(AlreadyClosedError("the consumer is closed", topic=self._target.topic))

    def attached(self, connection: Connection) -> None:
        """Use that connection; send waiting acknowledgements now, to avoid redelivery."""
        self._connection = connection
        self.flush()

    def detached(self) -> None:
        """Wait for the next connection. The broker redelivers refused messages by itself."""
        self._connection = None
        self.forget_refused()
        self.chunks.clear()
        self.acks.detached()
        if not self._options.durable:
            # The next connection makes a new subscription: this one's state doesn't apply.
            self.reset()

    def reset(self) -> None:
        """Forget all acknowledgements and refusals, for example after a seek."""
        self.acks.reset()
        if not self._group.is_done():
            promise, self._group = self._group, Promise()
            promise.resolve(None)
        self.forget_refused()
        self.chunks.clear()
        self._due_s = math.inf

    def acknowledge(self, entry: Entry, index: int) -> None:
        """Note a message as acknowledged."""
        self.counts.acks += 1
        state = entry.ack_state
        if state is not None and state.left > self._left_quiet:
            if state.flags[index]:
                state.flags[index] = 0
                state.left -= 1
            return
        if entry.bounds is None:
            self.acks.add(entry.ledger_id, entry.entry_id)
            if entry.chunks:
                self.acks.add_all(entry.chunks)
                self.chunks.take_earlier((entry.ledger_id, entry.entry_id))
            elif self._due_s != math.inf and self.unacked is None:
                self._noted += 1
                if self._noted < self._waiting_max:
                    # Most acknowledgements: the timer is set, and the group isn't full.
                    return
        elif not self.acks.add_delivered(entry, (index,)):
            return
        if self.unacked is not None:
            self._forget(entry.ledger_id, entry.entry_id)
        self._after_ack()

    def acknowledge_run(self, entry: Entry, indexes: Sequence[int]) -> None:
        """Note some messages of one entry as acknowledged."""
        if entry.bounds is None or len(indexes) == 1:
            self.acknowledge(entry, indexes[0])
            return
        self.counts.acks += len(indexes)
        if self.acks.add_delivered(entry, indexes):
            if self.unacked is not None:
                self._forget(entry.ledger_id, entry.entry_id)
            self._after_ack()

    def acknowledge_id(self, message_id: MessageId) -> None:
        """Note a message, given by id, as acknowledged."""
        self.counts.acks += 1
        if 0 <= message_id.batch_index < message_id.batch_size:
            position = message_id.ledger_id, message_id.entry_id
            self.acks.add_in_batch(position, message_id.batch_index, message_id.batch_size)
        else:
            self.acks.add(message_id.ledger_id, message_id.entry_id)
            position = message_id.ledger_id, message_id.entry_id
            self.acks.add_all(self.chunks.take_earlier(position))
        self._forget(message_id.ledger_id, message_id.entry_id)
        self._after_ack()

    def took_chunk(self) -> None:
        """After a chunk of an incomplete message, acknowledge messages that were dropped for it."""
        self._acknowledge_given_up()
        self._alarm.at(self.chunks.next_expiry_s)

    def _acknowledge_given_up(self) -> None:
        given_up, self.chunks.to_acknowledge = self.chunks.to_acknowledge, []
        self.acks.add_all(given_up)
        if given_up:
            self._after_ack()

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Note everything up to and including that message as acknowledged."""
        self.counts.acks += 1
        self.acks.add_cumulative(
            message_id.ledger_id,
            message_id.entry_id,
            message_id.batch_index,
            message_id.batch_size,
        )
        self.chunks.forget_up_to((message_id.ledger_id, message_id.entry_id))
        if self.unacked is not None:
            self.unacked.forget_up_to((message_id.ledger_id, message_id.entry_id - 1))
            self._forget(message_id.ledger_id, message_id.entry_id)
        self._after_ack()

    def _forget(self, ledger_id: int, entry_id: int) -> None:
        if self.unacked is None:
            return
        if self.acks.is_acked(ledger_id, entry_id) or not self.acks.keeps:
            self.unacked.forget((ledger_id, entry_id))

    def received(self, entry: Entry) -> bool:
        """The program received a message of that entry; starts its ack timeout. Returns whether
        further messages must be reported, too.
        """
        if self.unacked is None or self.unacked.timeouts is None:
            return False
        position = entry.ledger_id, entry.entry_id
        count = entry.redelivery_count
        self._alarm.at(self.unacked.timeouts.received(position, count, trio.current_time()))
        return True

    def _timed_out(self, now_s: float) -> list[Position]:
        if self.unacked is None or self.unacked.timeouts is None:
            return []
        positions: list[Position] = []
        for position in self.unacked.timeouts.due(now_s):
            positions += (*self.chunks.earlier(position), position)
        self._alarm.at(self.unacked.timeouts.next_due_s())
        return positions

    def _after_ack(self) -> None:
        waiting = self._noted = len(self.acks)
        if waiting >= self._waiting_max:
            if not self._options.ack_receipt_enabled:
                self.flush()
                return
            # Not now: the caller fetches the group's receipt after noting everything.
            self._due_s = trio.current_time()
            self._alarm.at(self._due_s)
        elif waiting and self._due_s == math.inf:
            self._due_s = trio.current_time() + self._options.ack_grouping_time_s
            self._alarm.at(self._due_s)

    def flush(self) -> None:
        """Send waiting acknowledgements, if connected."""
        connection = self._connection
        if connection is None:
            if self._alarm.is_stopped:
                # Stopped: nothing can be sent any more.
                self.acks.reset()
            return
        self._due_s = math.inf
        if not len(self.acks):
            return
        groups = self.acks.take()
        if self._options.ack_receipt_enabled:
            promise, self._group = self._group, Promise()
            self._unanswered[promise] = len(groups)
            for group in groups:
                self._core.nursery.start_soon(self._send_for_receipt, connection, group, promise)
            return
        for group in groups:
            connection.write(self._command(group, None))

    async def settle(self) -> None:
        """Send waiting acknowledgements. With receipts, wait for them, up to the operation timeout,
        so that the next request follows the acknowledgements.
        """
        self.flush()
        if not self._unanswered:
            return
        with trio.move_on_after(self._core.options.operation_timeout_s):
            for promise in list(self._unanswered):
                with suppress(GemingaError):
                    await promise.wait()

    def _command(self, group: AckGroup, request_id: int | None) -> bytes:
        if request_id is None and group.run is not None:
            return ack_of_run(self._target.consumer_id, *group.run)
        if request_id is None and not group.cumulative:
            return individual_acks(self._target.consumer_id, group.ids)
        ids = [
            MessageId(ledger_id, entry_id, ack_set=ack_set)
            for ledger_id, entry_id, ack_set in group.all_ids()
        ]
        return commands.ack(
            self._target.consumer_id, ids, cumulative=group.cumulative, request_id=request_id
        )

    async def _send_for_receipt(
        self, connection: Connection, group: AckGroup, promise: Promise[None]
    ) -> None:
        try:
            await self._ask(connection, group)
        except GemingaError as error:
            self._failed(group, error)
            promise.reject(error)
        finally:
            self._unanswered[promise] -= 1
            if not self._unanswered[promise]:
                # Pending if no command failed, or if cancelled (the client is being closed).
                del self._unanswered[promise]
                promise.resolve(None)

    def _failed(self, group: AckGroup, error: GemingaError) -> None:
        """Handle an error receipt for a group."""
        self.counts.acks_failed += len(group.all_ids())

    async def _ask(self, connection: Connection, group: AckGroup) -> None:
        answer = await connection.request(
            lambda request_id: self._command(group, request_id),
            timeout_s=self._core.options.operation_timeout_s,
            topic=self._target.topic,
        )
        response = answer.ackResponse
        if response.HasField("error"):
            raise from_broker(error_name(response.error), response.message, self._target.topic)

    @property
    def group(self) -> Promise[None] | None:
        """The broker's receipt for the newest acknowledgement's group; None if nothing waits to be
        sent.
        """
        return self._group if len(self.acks) else None

    def refuse(self, message_id: MessageId, redelivery_count: int) -> None:
        """Request redelivery of the message's entry after the delay."""
        position = message_id.ledger_id, message_id.entry_id
        if self.unacked is not None and self.unacked.timeouts is not None:
            self.unacked.timeouts.forget(position)
        now_s = trio.current_time()
        for each in (*self.chunks.earlier(position), position):
            self._alarm.at(self._nacks.add(each, redelivery_count, now_s))

    def forget_refused(self) -> None:
        """Forget negative acknowledgements and timeouts: everything is redelivered anyway."""
        self._nacks.clear()
        if self.unacked is not None:
            self.unacked.clear()

    def _on_alarm(self, now_s: float) -> float:
        if self._due_s <= now_s:
            self._due_s = math.inf
            self.flush()
        refused, timed_out = self._nacks.due(now_s), self._timed_out(now_s)
        if refused or timed_out:
            self.counts.refused += len(refused)
            self.counts.timed_out += len(timed_out)
            self._before_redelivery(refused, timed_out)
            self._target.redeliver(refused + timed_out)
        next_expiry_s = self.chunks.expire(now_s)
        self._acknowledge_given_up()
        return min(self._due_s, self._nacks.next_due_s(), next_expiry_s)

    def _before_redelivery(self, refused: list[Position], timed_out: list[Position]) -> None:
        """Hook for interceptors."""

    @property
    def receipt_timeout_s(self) -> float:
        """How long a program waits for a receipt at most."""
        return self._core.options.operation_timeout_s + self._options.ack_grouping_time_s


async def wait_for_receipts(acknowledgers: Iterable[Acknowledger]) -> None:
    """Wait for the receipts of the groups of their newest acknowledgements. Raises their errors,
    and OperationTimeoutError if one doesn't come in time: a partition may have no connection, as
    another consumer has taken it.
    """
    # Collect all first: during the wait for one, another may be sent.
    groups = [(each, each.group) for each in acknowledgers]
    await trio.lowlevel.checkpoint()
    for each, group in groups:
        if group is None:
            continue
        with trio.move_on_after(each.receipt_timeout_s) as patience:
            await group.wait()
        if patience.cancelled_caught:
            raise OperationTimeoutError(
                f"no receipt for an acknowledgement within {each.receipt_timeout_s:g} s; it is "
                "sent when the consumer is connected again",
                topic=each._target.topic,
            )

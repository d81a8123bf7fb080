"""The one task that dispatches for a subscription, and what its dispatchers share."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import trio

from geminga_broker.log.api import Ack, Cursor, Entry, LogClosed, LogError, LogFenced
from geminga_broker.policies.model import TopicOptions
from geminga_broker.policies.rate_limit import Published, Rate, RateLimit, limit_of, take_all
from geminga_broker.subscription.catch_up import ROUND_BYTES, ROUND_ENTRIES
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.entry_filters import FilterContext, FilterCounts, judge
from geminga_broker.topic.api import KeySharedPolicy, TopicEnvironment
from geminga_protocol.ids import Position

_log = logging.getLogger(__name__)

LIMIT_CHECK_S = 1.0
"""A subscription that is held back by a rate limit looks so often whether the limit still holds."""

CLOCK_CHECK_S = 1.0
"""The wall clock is looked at so often while delayed entries wait."""

RETRY_S = 1.0
"""Pause after storage failed to read."""


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """What a dispatcher works with. `wake` wakes its pump, `before` is the log's
    `previous_position`.
    """

    cursor: Cursor
    environment: TopicEnvironment
    options: TopicOptions
    wake: Callable[[], None]
    before: Callable[[Position], Position]
    recipient: FilterContext
    cursor_of: Callable[[Consumer], Cursor]
    """What an only active consumer reads with: compacted or not."""


class Dispatcher(ABC):
    """How one kind of subscription gives out entries. `lock` is held during a round."""

    def __init__(self, context: DispatchContext) -> None:
        self.cursor = context.cursor
        self.options = context.options
        self.environment = context.environment
        self._wake = context.wake
        self._before = context.before
        self._recipient = context.recipient
        self.filtered = FilterCounts()
        self.kicked = True
        self._rewind = True
        self.consumers: list[Consumer] = []
        self.emptying = False
        """Whether all consumers are being closed: what they hold is queued for none of them."""
        self.lock = trio.Lock()
        self.carry: Sequence[Entry] = ()
        """Entries read that found nobody with permits. At most one read's."""
        self.allowance: int | None = None
        """How many messages rate limits let go out in the next round; None: any number."""
        self.out_of_order = False
        """Whether consumers said that the order of a key doesn't matter."""
        self.gentle = False
        """Whether the next round is to be short: it reads old entries beside tail work."""

    @property
    def key_shared_mode(self) -> str | None:
        """For stats; None where keys don't matter."""
        return None

    @property
    def active(self) -> Consumer | None:
        """The active consumer of Exclusive and Failover."""
        return None

    @property
    def blocked(self) -> bool:
        """Whether the subscription as a whole has too many unacknowledged messages."""
        return False

    @property
    def delayed(self) -> int:
        """Entries that wait for their time."""
        return 0

    @property
    def delayed_bytes(self) -> int:
        """About how much memory it takes to know them."""
        return 0

    @property
    def replaying(self) -> int:
        """Entries that wait to be sent again."""
        return 0

    @property
    @abstractmethod
    def sub_type(self) -> int:
        """What kind of subscription this is for."""

    def matches(self, policy: KeySharedPolicy) -> bool:
        """Whether a consumer with that Key_Shared policy may join."""
        return True

    def admit(self, consumer: Consumer) -> None:
        """A consumer comes. Raises BrokerError, and then nothing is changed."""
        self.consumers.append(consumer)

    def added(self, consumer: Consumer) -> None:
        """Its client knows that it is in: now it may hear of more."""
        self._wake()

    @abstractmethod
    def remove(self, consumer: Consumer) -> None:
        """A consumer left; what it held is sent again."""

    @abstractmethod
    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Send again."""

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Acknowledge at the cursor."""
        if cumulative:
            ack = acks[0]
            if not ack.ack_set or self.options.batch_index_ack:
                self.cursor.ack_cumulative(ack.position, ack.ack_set)
            else:
                # The batch itself is not done; all before it is.
                self.cursor.ack_cumulative(self._before(ack.position))
        else:
            self.cursor.ack(self.recordable(acks))

    def recordable(self, acks: Sequence[Ack]) -> Sequence[Ack]:
        """Those that the cursor keeps: parts of batches only if that is switched on."""
        if self.options.batch_index_ack:
            return acks
        return [ack for ack in acks if not ack.ack_set]

    def filter(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """What entry filters let through; what they reject is acknowledged (BR-37)."""
        filters = self.options.entry_filters
        if not filters or not entries:
            return entries
        judged = judge(filters, entries, self._recipient, self.filtered)
        if judged.rejected:
            self.cursor.ack(judged.rejected)
        if judged.rescheduled and not self.reschedule(judged.rescheduled):
            gone = {ack.position for ack in judged.rejected}
            return [entry for entry in entries if entry.position not in gone]
        return judged.accepted

    def reschedule(self, entries: Sequence[Entry]) -> bool:
        """Try these again later; False where order doesn't allow it."""
        return False

    def reset(self) -> None:
        """Start over from the mark-delete position; takes effect with the next round."""
        self._rewind = True
        self.carry = ()
        self._wake()

    def begin_round(self) -> None:
        """Apply a reset that was asked for since."""
        if self._rewind:
            self._rewind = False
            self.carry = ()
            self.cursor.rewind()

    @property
    def stale(self) -> bool:
        """Whether what was just read is of no use, because a reset was asked for meanwhile."""
        return self._rewind

    def kick(self) -> None:
        """A consumer may take more than before: permits, room in its connection."""
        self.kicked = True

    def forget_deleted(self) -> None:
        """Entries were acknowledged from outside (skip, expire): don't send them any more."""
        self.carry = [e for e in self.carry if not self.cursor.is_deleted(e.position)]

    @abstractmethod
    async def round(self) -> bool:
        """Give out what can be given out now; False when there is nothing to do until woken."""

    @property
    def next_due_ms(self) -> int | None:
        """When to run without being woken, wall clock; None: never."""
        return None

    @property
    def pause_s(self) -> float:
        """How long to wait at most before the next round, however the wall clock is set."""
        return math.inf

    def entries_wanted(self, permits: int, average: float) -> int:
        """How many entries to read so that permits, or the allowance, are about used up."""
        if self.allowance is not None:
            permits = min(permits, self.allowance)
        return max(1, min(self.entries_max, int(permits / max(average, 1.0))))

    @property
    def entries_max(self) -> int:
        """Most entries that a round reads."""
        most = self.options.dispatch_entries_max
        return min(most, ROUND_ENTRIES) if self.gentle else most

    @property
    def bytes_max(self) -> int:
        """Most bytes that a round reads, but for one entry."""
        most = self.options.dispatch_bytes_max
        return min(most, ROUND_BYTES) if self.gentle else most

    def ack_sets_of(self, entries: Sequence[Entry]) -> Mapping[Position, tuple[int, ...]]:
        """Ack sets of the batches that are acknowledged in part."""
        if not self.options.batch_index_ack:
            return {}
        of = self.cursor.ack_set
        found = {e.position: of(e.position) for e in entries if e.messages > 1}
        return {position: words for position, words in found.items() if words}


class Pump:
    """Runs a dispatcher's rounds as long as it has consumers."""

    def __init__(self, name: str, environment: TopicEnvironment) -> None:
        self.dispatcher: Dispatcher | None = None
        self._own_limit: tuple[RateLimit, ...] = ()
        self._limits: tuple[RateLimit, ...] = ()
        self._name = name
        self._environment = environment
        self._event = trio.Event()
        self._running = False

    def wake(self) -> None:
        """Something changed: entries, permits, consumers."""
        self._event.set()

    def start(self) -> None:
        """See to it that the task runs."""
        if not self._running:
            self._running = True
            self._environment.nursery.start_soon(self._run, name=f"pump of {self._name}")
        self.wake()

    async def _run(self) -> None:
        try:
            while (dispatcher := self.dispatcher) is not None and dispatcher.consumers:
                event = self._event = trio.Event()
                if self._limits and (wait_s := self._allow(dispatcher)):
                    await trio.sleep(min(wait_s, LIMIT_CHECK_S))
                    continue
                fetched = dispatcher.cursor.fetched
                try:
                    async with dispatcher.lock:
                        more = await self._round(dispatcher)
                except (LogFenced, LogClosed):
                    return
                except LogError as error:
                    _log.warning("%s: reading failed, trying again: %s", self._name, error)
                    await trio.sleep(RETRY_S)
                    continue
                if dispatcher.cursor.fetched != fetched:
                    await self._give_way(dispatcher, fetched)
                    continue
                dispatcher.gentle = False
                if not more:
                    await self._wait(event, dispatcher)
        except Exception:
            # A defect here must not take down the other topics: its consumers come back.
            _log.exception("%s: dispatch broke off", self._name)
            if self.dispatcher is not None:
                for consumer in list(self.dispatcher.consumers):
                    consumer.disconnect()
        finally:
            self._running = False

    async def _give_way(self, dispatcher: Dispatcher, before: tuple[int, int]) -> None:
        """After a round that read old entries: let tail work have the loop (BR-40)."""
        catch_up = self._environment.catch_up
        entries, size = dispatcher.cursor.fetched
        now_s = trio.current_time()
        pause_s = catch_up.pause_s(entries - before[0], size - before[1], now_s)
        dispatcher.gentle = catch_up.busy(now_s)
        if pause_s:
            await trio.sleep(pause_s)
            catch_up.paused(trio.current_time() - now_s - pause_s)

    async def _round(self, dispatcher: Dispatcher) -> bool:
        """One round, what it sends counted at the limits."""
        if not self._limits:
            return await dispatcher.round()
        before = [
            (each.rates, each.rates.messages, each.rates.bytes) for each in dispatcher.consumers
        ]
        try:
            return await dispatcher.round()
        finally:
            messages = sum(rates.messages - known for rates, known, _ in before)
            size = sum(rates.bytes - known for rates, _, known in before)
            take_all(self._limits, messages, size, trio.current_time())

    def _allow(self, dispatcher: Dispatcher) -> float:
        """How long nothing may be sent; if something may, tell the dispatcher how much."""
        wait_s = take_all(self._limits, 0, 0, trio.current_time())
        left = [n for limit in self._limits if (n := limit.messages_left) is not None]
        dispatcher.allowance = min(left, default=None)
        return wait_s

    def limit(
        self, rate: Rate, shared: tuple[RateLimit, ...], published: Published | None = None
    ) -> None:
        """From now on a rate of its own holds, and limits that it shares with others."""
        self._own_limit = limit_of(self._own_limit, rate, trio.current_time(), published)
        self._limits = shared + self._own_limit
        if not self._limits and self.dispatcher is not None:
            self.dispatcher.allowance = None
        self.wake()

    async def _wait(self, event: trio.Event, dispatcher: Dispatcher) -> None:
        due_ms = dispatcher.next_due_ms
        if due_ms is None:
            with trio.move_on_after(dispatcher.pause_s):
                await event.wait()
            return
        # The wall clock may be set while this waits.
        while (left_ms := due_ms - self._environment.now_ms()) > 0:
            with trio.move_on_after(min(left_ms / 1000, CLOCK_CHECK_S)):
                await event.wait()
                return
        await trio.lowlevel.checkpoint()

"""The task that dispatches for a subscription: runs the machine's effects and feeds back the
results. The only part of a subscription that waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from geminga_broker.log.api import Ack, AckRun, EntryCursor, LogClosed, LogError, LogFenced
from geminga_broker.policies.rate_limit import Published, Rate, RateLimit, limit_of, take_all
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.delayed_delivery import DelayedDelivery
from geminga_broker.subscription.machine import OrderedMachine
from geminga_broker.subscription.replay import read_some
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import TopicEnvironment
from geminga_protocol.ids import Position

_log = logging.getLogger(__name__)

LIMIT_CHECK_S = 1.0
"""Interval of checks whether a rate limit still pauses the subscription."""

CLOCK_CHECK_S = 1.0
"""Interval of reading the wall clock while delayed entries wait."""

RETRY_S = 1.0
"""Pause after a failed read."""


Machine: TypeAlias = OrderedMachine[Consumer] | TrackedMachine[Consumer]

_TIMELY = (fx.Read, fx.ReadAt, fx.CollectDue)


class Pump:
    """Runs a machine's rounds as long as it has members. `lock` is held during a round."""

    def __init__(
        self,
        name: str,
        environment: TopicEnvironment,
        cursor: EntryCursor,
        cursor_of: Callable[[Consumer], EntryCursor],
        before: Callable[[Position], Position],
    ) -> None:
        self.machine: Machine | None = None
        self.lock = trio.Lock()
        self.delays: DelayedDelivery | None = None
        self._cursor = cursor
        self._cursor_of = cursor_of
        """The cursor of an active consumer: compacted or not."""
        self._before = before
        """The log's `previous_position`."""
        self._own_limit: tuple[RateLimit, ...] = ()
        self._limits: tuple[RateLimit, ...] = ()
        self._name = name
        self._environment = environment
        self._event = trio.Event()
        self._running = False
        self._paced = False
        self._sent = (0, 0)
        """Messages and bytes sent in this round."""
        self._pause: fx.Order | fx.WakeAt | fx.PauseUntil | None = None
        """The round's last effect; None: wait to be woken."""
        self.round_began_s = 0.0
        """When the last round began, by the loop's clock."""
        self.read_error = ""
        """Why the last read failed; empty since one succeeded."""

    def use(self, machine: Machine, delays: DelayedDelivery | None, cursor: EntryCursor) -> None:
        """Run `machine` from now on."""
        self.machine, self.delays, self._cursor = machine, delays, cursor

    def wake(self) -> None:
        """Entries, permits or consumers changed."""
        self._event.set()

    def start(self) -> None:
        """Start the task unless it runs."""
        if not self._running:
            self._running = True
            self._environment.nursery.start_soon(self._run, name=f"pump of {self._name}")
        self.wake()

    @property
    def running(self) -> bool:
        """Whether the task runs."""
        return self._running

    @property
    def has_more(self) -> bool:
        """Whether the log has entries that were not read yet."""
        upto = self.machine.state.readable_upto if self.machine is not None else None
        return self._cursor.available(upto)

    def throttled(self, now_s: float) -> list[tuple[RateLimit, bool, float]]:
        """The rate limits that are used up: each limit, whether other subscriptions share it, and
        the seconds until it allows a message.
        """
        waits = [(limit, limit.take(0, 0, now_s)) for limit in self._limits]
        return [(limit, limit not in self._own_limit, wait_s) for limit, wait_s in waits if wait_s]

    def paused_by_broker(self) -> bool:
        """Whether the broker's limit of unacknowledged messages pauses this subscription."""
        limit = self._environment.unacked_limit
        return limit is not None and limit.pauses(self)

    # ---- events and effects ----

    def post(self, event: ev.Event[Consumer]) -> None:
        """Pass an event to the machine, if there is one, and run the effects."""
        machine = self.machine
        if machine is None:
            return
        for effect in machine.step(event):
            if isinstance(effect, fx.Acknowledge) and not effect.parts:
                self._acknowledge(effect.acks)
            else:
                self._act(machine, effect)
        if self._environment.unacked_limit is not None:
            self._count_unacked(machine)

    def _acknowledge(self, acks: Sequence[Ack]) -> None:
        if isinstance(acks, AckRun):
            self._cursor.ack_run(acks)
        else:
            self._cursor.ack(acks)

    def _send(self, send: fx.Send[Consumer]) -> None:
        size = send.member.send(send.entries, send.messages, send.redeliveries, send.ack_sets)
        if self._limits:
            self._sent = self._sent[0] + send.messages, self._sent[1] + size

    def _act(self, machine: Machine, effect: fx.Effect[Consumer]) -> None:
        """Run a synchronous effect."""
        match effect:
            case fx.Acknowledge(acks, member, parts):
                self._acknowledge(acks)
                if member is not None:
                    for follows in machine.step(ev.PartsRecorded(member, parts)):
                        self._act(machine, follows)
            case fx.WAKE:
                self._event.set()
            case fx.AGAIN | fx.WakeAt() | fx.PauseUntil():
                self._pause = effect
            case fx.SAVE_DELAYS | fx.PASS_OVER:
                assert self.delays is not None, "only a machine with delays asks for this"
                (self.delays.save if effect is fx.SAVE_DELAYS else self.delays.pass_over)()
            case fx.REWIND:
                self._cursor.rewind()
            case fx.AcknowledgeUpto(ack, with_part):
                if not ack.ack_set or with_part:
                    self._cursor.ack_cumulative(ack.position, ack.ack_set)
                else:
                    # All before the batch, which is only partly acknowledged.
                    self._cursor.ack_cumulative(self._before(ack.position))
            case fx.Send():
                self._send(effect)
            case fx.CountRedelivered(consumer, messages):
                consumer.redelivered.add(messages, 0)
            case fx.TellActive(consumer, active):
                consumer.notify_active(active)
            case fx.ReadFor(consumer):
                self._cursor = machine.state.acknowledged = self._cursor_of(consumer)
            case _:
                raise AssertionError(f"{effect} takes time")

    def _count_unacked(self, machine: Machine) -> None:
        """Report to the broker's limit, if there is one."""
        limit = self._environment.unacked_limit
        if limit is not None:
            limit.count(self, sum([each.unacked for each in machine.state.members]), self.wake)

    async def _round(self, machine: Machine) -> None:
        """One round: from RoundBegun to a step without a reading effect."""
        self._pause = None
        allowance = self._allowance() if self._limits else None
        available = self._cursor.available(machine.state.readable_upto)
        event: ev.Event[Consumer] | None
        event = ev.RoundBegun(trio.current_time(), available, allowance, self._paced)
        while event is not None:
            effects = machine.step(event)
            event = None
            for effect in effects:
                if isinstance(effect, fx.Send):
                    self._send(effect)
                elif isinstance(effect, _TIMELY):
                    event = await self._fetch(machine, effect)
                else:
                    self._act(machine, effect)
            self._count_unacked(machine)

    async def _fetch(
        self, machine: Machine, effect: fx.Read | fx.ReadAt | fx.CollectDue
    ) -> ev.Event[Consumer] | None:
        """Run an effect that takes time. Raises LogError if the machine has nothing to send from
        before the failure.
        """
        cursor, delays, now_ms = self._cursor, self.delays, self._environment.now_ms
        try:
            if isinstance(effect, fx.Read):
                entries_max, bytes_max, upto = effect
                if not cursor.available(upto):
                    return ev.EntriesRead((), now_ms(), False)
                read = await cursor.read(entries_max=entries_max, bytes_max=bytes_max, upto=upto)
                return ev.EntriesRead(read, now_ms(), cursor.available(upto))
            if isinstance(effect, fx.ReadAt):
                asked, found = await read_some(cursor, effect.positions, effect.bytes_max)
                return ev.EntriesReadAgain(asked, found, now_ms())
            assert delays is not None, "only a machine with delays collects them"
            return ev.DueCollected(await delays.collect_due(now_ms(), effect.entries_max))
        except LogError:
            effects = machine.step(ev.ReadFailed())
            if not effects:
                raise
            for each in effects:
                self._act(machine, each)
            return None

    # ---- the task ----

    async def _run(self) -> None:
        try:
            while (machine := self.machine) is not None and machine.state.members:
                event = self._event = trio.Event()
                if self._limits and (wait_s := take_all(self._limits, 0, 0, trio.current_time())):
                    await trio.sleep(min(wait_s, LIMIT_CHECK_S))
                    continue
                cursor = self._cursor
                fetched = cursor.fetched
                self._sent = (0, 0)
                try:
                    async with self.lock:
                        self.round_began_s = trio.current_time()
                        await self._round(machine)
                        self.read_error = ""
                except (LogFenced, LogClosed):
                    return
                except LogError as error:
                    self.read_error = str(error) or type(error).__name__
                    _log.warning("%s: read failed, retrying: %s", self._name, error)
                    await trio.sleep(RETRY_S)
                    continue
                finally:
                    if self._limits:
                        take_all(self._limits, *self._sent, trio.current_time())
                if cursor.fetched != fetched:
                    await self._give_way(cursor, fetched)
                    continue
                self._paced = False
                await self._wait(event)
        except Exception:
            # A defect here must not stop other topics. The consumers will reconnect.
            _log.exception("%s: dispatch failed, closing its consumers", self._name)
            if self.machine is not None:
                for consumer in list(self.machine.state.members):
                    consumer.disconnect()
        finally:
            self._running = False

    async def _give_way(self, cursor: EntryCursor, before: tuple[int, int]) -> None:
        """After a round with old entries: leave the loop to tail work for a while (BR-40)."""
        catch_up = self._environment.catch_up
        entries, size = cursor.fetched
        now_s = trio.current_time()
        pause_s = catch_up.pause_s(entries - before[0], size - before[1], now_s)
        self._paced = catch_up.busy(now_s)
        if pause_s:
            await trio.sleep(pause_s)
            catch_up.paused(trio.current_time() - now_s - pause_s)

    def _allowance(self) -> int | None:
        """How many messages the rate limits allow now."""
        left = [n for limit in self._limits if (n := limit.messages_left) is not None]
        return min(left, default=None)

    def limit(
        self, rate: Rate, shared: tuple[RateLimit, ...], published: Published | None = None
    ) -> None:
        """Set the subscription's own rate, and the limits that it shares with others."""
        self._own_limit = limit_of(self._own_limit, rate, trio.current_time(), published)
        self._limits = shared + self._own_limit
        self.wake()

    async def _wait(self, event: trio.Event) -> None:
        """Wait as the round's last effect requires, at most until woken."""
        match self._pause:
            case fx.AGAIN:
                return
            case fx.WakeAt(due_ms):
                # The wall clock may be adjusted meanwhile.
                while (left_ms := due_ms - self._environment.now_ms()) > 0:
                    with trio.move_on_after(min(left_ms / 1000, CLOCK_CHECK_S)):
                        await event.wait()
                        return
                await trio.lowlevel.checkpoint()
            case fx.PauseUntil(time_s):
                with trio.move_on_at(time_s):
                    await event.wait()
            case None:
                await event.wait()

"""Passes acknowledgements from the program's threads to the loop, many at a time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import trio

from geminga._acknowledging.ack_runs import MessageOrId, Run, note_runs
from geminga._bridge.calls import ClientSession
from geminga._entries.entry import Entry
from geminga.consumer import Consumer, receiving_of
from geminga.errors import GemingaError
from geminga.message import Message
from geminga_runtime.waiters import Promise

T = TypeVar("T")
logger = logging.getLogger("geminga")


class AckSender:
    """Passes the acknowledgements of one consumer on (bounded by the received messages)."""

    def __init__(self, session: ClientSession, consumer: Consumer) -> None:
        self.session = session
        self.consumer = consumer
        self.receiving = receiving_of(consumer)
        self._portal = session.portal
        self._checked: Entry | None = None
        """The entry of the last acknowledged message: checked to be this consumer's."""
        self._acks: deque[MessageOrId] = deque()
        self._ack_runs: deque[Run] = deque()
        self._read: Message | None = None
        self._drains = 0
        self._signalled_for = -1
        """See Sender: a flag set before the wake-up would mislead signal handlers."""
        self.waits_for_receipts = self.receiving.subscription.options.ack_receipt_enabled
        """Whether an acknowledgement waits for the broker's receipt."""

    # ---- in the program's threads ----

    def acknowledge(self, message: MessageOrId) -> None:
        """Queue an acknowledgement. Raises InvalidArgumentError and ForkError."""
        if not isinstance(message, Message) or message._entry is not self._checked:
            self._check_once(message)
        self._acks.append(message)
        if self._signalled_for != self._drains:
            self._signal()

    def _check_once(self, message: MessageOrId) -> None:
        self.receiving.part_of(message)
        if isinstance(message, Message):
            self._checked = message._entry

    def acknowledge_runs(self, runs: list[Run]) -> None:
        """Queue many, as grouped by `Receiving.runs`. Raises ForkError."""
        self._ack_runs.extend(runs)
        if runs:
            self._signal()

    def acknowledge_read(self, message: Message) -> None:
        """Note a reader's position; only the newest one is acknowledged."""
        self._read = message
        self._signal()

    def _signal(self) -> None:
        portal = self._portal
        if portal.is_forked:
            portal.refuse()
        drains = self._drains
        if self._signalled_for != drains:
            portal.post(self._drain)
            self._signalled_for = drains

    # ---- in the loop ----

    def _drain(self) -> None:
        self._drains += 1
        self.hand_acks_over()

    def hand_acks_over(self) -> None:
        """Acknowledge everything queued so far, before any later call of the Trio consumer."""
        try:
            read, self._read = self._read, None
            if read is not None:
                part = self.receiving.part_of(read)
                part.acknowledger.acknowledge_cumulative(read.message_id)
        except GemingaError as error:
            logger.warning("acknowledgement failed: %s", error)
        acks, waiting = self._acks, self._ack_runs
        if acks:
            note_runs(self._runs([acks.popleft() for _ in range(len(acks))]))
        if waiting:
            note_runs([waiting.popleft() for _ in range(len(waiting))])

    def _runs(self, messages: list[MessageOrId]) -> list[Run]:
        """The messages grouped, without those that can't be acknowledged any more."""
        try:
            return self.receiving.runs(messages)
        except GemingaError as error:
            logger.warning("acknowledgement failed: %s", error)
        runs: list[Run] = []
        for message in messages:
            with suppress(GemingaError):
                runs += self.receiving.runs([message])
        return runs

    def note(self, runs: list[Run], groups: list[Promise[None] | None]) -> None:
        """Acknowledge these, after earlier ones; adds the groups whose receipts are awaited."""
        self.hand_acks_over()
        note_runs(runs)
        groups += [part.acknowledger.group for part in {part: None for part, _, _ in runs}]

    @staticmethod
    async def receipts_of(groups: list[Promise[None] | None]) -> None:
        """Wait for the broker's receipts of these groups. Raises their errors."""
        await trio.lowlevel.checkpoint()
        for group in groups:
            if group is not None:
                await group.wait()

    async def ask(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function after the Trio consumer has all acknowledgements."""
        self.hand_acks_over()
        return await function()

    def redeliver(self) -> None:
        """As Consumer.redeliver_unacknowledged_messages."""
        self.hand_acks_over()
        self.consumer.redeliver_unacknowledged_messages()

    def negative_acknowledge(self, message: MessageOrId) -> None:
        """As Consumer.negative_acknowledge."""
        self.hand_acks_over()
        try:
            self.consumer.negative_acknowledge(message)
        except GemingaError as error:
            logger.warning("negative acknowledgement failed: %s", error)

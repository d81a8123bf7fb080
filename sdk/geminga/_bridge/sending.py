"""Passes messages from the program's threads to the loop, many at a time."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeVar

import trio

from geminga._bridge.calls import ClientSession
from geminga._bridge.handed import NO_DETAILS, Handed
from geminga._connection.retry import FATAL
from geminga._entries.encode import Extras
from geminga._options.callbacks import FAILURES
from geminga._producing.receipt import Receipt, place_of
from geminga.errors import (
    AlreadyClosedError,
    GemingaError,
    InvalidArgumentError,
    MemoryLimitError,
    ProducerQueueFullError,
)
from geminga.producer import Producer, partitions_of
from geminga_runtime.waiters import own_copy

T = TypeVar("T")
logger = logging.getLogger("geminga")

BYTES_IN_HAND_MAX = 4 * 1024 * 1024
"""Bytes queued between two checks of the client's memory limit."""
RUN_MAX = 1024
"""Messages passed to the Trio producer at once."""
FREED_PART = 16
"""A wait for room ends after this part of all pending frames, not after each."""
ROOM_POLL_S = 0.001


def in_context(extras: Extras | None) -> Extras:
    """A message's options with the caller's context, in which its interceptors are to be called."""
    made = extras or Extras()
    made.context = copy_context()
    return made


class Sender:
    """Passes the messages of one producer on.

    The bounds are `max_pending_messages` over all partitions together, and the client's memory
    limit, which may be exceeded by BYTES_IN_HAND_MAX. Queued messages count. Counters only rise, so
    that a stale one shows too little room, never too much.
    """

    def __init__(self, session: ClientSession, producer: Producer[Any]) -> None:
        self.session = session
        self.producer = producer
        self.partitions = partitions_of(producer)
        self._queue: deque[Handed] = deque()
        # Sending threads change these together, without a call in between, where another thread or
        # a signal handler could run. A lock might be held by the frame that a handler interrupts.
        self._put_messages = 0
        self._put_bytes = 0
        self._messages_limit = 0
        """`_put_messages` may rise to this before the next check for room."""
        self._bytes_limit = 0
        self._taken_bytes = 0
        self._refused_messages = 0
        """Messages that never reached the Trio producer."""
        self._drains = 0
        """The number of times that the loop began to take messages."""
        self._signalled_for = -1
        """`_drains` before the last wake-up. Not a flag set before the wake-up: a signal handler in
        between would consider the loop awake, and wait for ever."""
        self._catching_up: trio.Event | None = None
        session.portal.forkables.add(self)

    def after_fork(self) -> None:
        """In the child: refuse the next message."""
        self._messages_limit = -1
        self._signalled_for = -1

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """Fail all messages without a receipt, and accept no more."""
        self._messages_limit = -1
        while self._queue:
            self._queue.popleft().refuse(error)
        for part in self.partitions.parts:
            part.outbox.abandon(error)

    @property
    def pending_messages(self) -> int:
        """Number of messages without a receipt."""
        settled = self.partitions.settled_messages + self._refused_messages
        return max(0, self._put_messages - settled)

    # ---- in the program's threads ----

    def put(self, handed: Handed) -> GemingaError | None:
        """Queue a message; if there is no room, returns the error. Raises ForkError, and the error
        that ended the producer.
        """
        portal = self.session.portal
        if portal.is_forked:
            portal.refuse()
        size_bytes = len(handed.data)
        while not self._take_in(handed, size_bytes):
            full = self._look_for_room()
            if full is not None:
                return full
        if self._signalled_for != self._drains:
            self._signal()
        return None

    def _take_in(self, handed: Handed, size_bytes: int) -> bool:
        """Queue a message; False if the room must be checked first."""
        if self._put_messages >= self._messages_limit or self._put_bytes >= self._bytes_limit:
            return False
        self._put_messages += 1
        self._put_bytes += size_bytes
        self._queue.append(handed)
        return True

    def _signal(self) -> None:
        drains = self._drains
        self.session.portal.post(self._drain)
        self._signalled_for = drains

    def _look_for_room(self) -> GemingaError | None:
        """Set the limits to the present room; returns an error if there is none."""
        error = self._why_over()
        if error is not None:
            raise own_copy(error)
        topic = self.producer.topic
        messages, size_bytes = self._room()
        if self._put_messages >= messages:
            text = f"{self.partitions.pending_max} messages wait for their receipts"
            return ProducerQueueFullError(text, topic=topic)
        if self._put_bytes >= size_bytes:
            return MemoryLimitError("the client's memory limit is used up", topic=topic)
        self._messages_limit = messages
        self._bytes_limit = min(size_bytes, self._put_bytes + BYTES_IN_HAND_MAX)
        return None

    def _room(self) -> tuple[int, int]:
        """Limits of the counts of queued messages and bytes. Messages taken or completed meanwhile
        still count.
        """
        messages = self._refused_messages + self.partitions.settled_messages
        taken_bytes = self._taken_bytes
        memory = self.partitions.core.memory
        room_bytes = memory.limit_bytes - memory.used_bytes
        return self.partitions.pending_max + messages, taken_bytes + room_bytes

    def _why_over(self) -> GemingaError | None:
        """The error with which the Trio producer refuses every message, or None."""
        if not self.session.is_running:
            return AlreadyClosedError("the client is closed", topic=self.producer.topic)
        parts = self.partitions.parts
        if len(parts) > 1 and not all(isinstance(part.error, FATAL) for part in parts):
            # Messages go to the other partitions, and a temporarily failed one is restarted.
            return None
        return parts[0].error

    # ---- in the loop ----

    def _drain(self) -> None:
        self._drains += 1
        if self._catching_up is not None:
            return
        queue = self._queue
        # Only the present ones: later messages wait for the loop's next turn, as otherwise a busy
        # thread would prevent writing.
        left = len(queue)
        while left > 0:
            run, sent = self._send_run(min(left, RUN_MAX))
            left -= max(1, run)
            # Singly: the rest of the run, or a message with more than a payload.
            for _ in range(max(1, run) - sent):
                if not self._send_one():
                    self._wait_until_there_is_room()
                    return
        if queue and self._signalled_for != self._drains:
            self._signal()

    def _send_run(self, count: int) -> tuple[int, int]:
        """Send next messages with a payload only, all at once; returns their number, and how many
        the producer accepted.
        """
        queue = self._queue
        run: list[Handed] = []
        popleft = queue.popleft
        for _ in range(count):
            if queue[0].details is not None:
                break
            run.append(popleft())
        placed = self.partitions.send_run([handed.data for handed in run]) if run else []
        sent = taken_bytes = 0
        for outgoing, first, messages in placed:
            for index, handed in enumerate(run[sent : sent + messages], first):
                taken_bytes += len(handed.data)
                # `Handed.place`, inlined: this is on the hot path.
                handed._index = index
                handed._outgoing = outgoing
                handed.data = b""
                if handed._waiting is not None:
                    handed._tell()
            sent += messages
        self._taken_bytes += taken_bytes
        if sent < len(run):
            queue.extendleft(reversed(run[sent:]))
        return len(run), sent

    def _send_one(self) -> bool:
        """Pass one message to the Trio producer; returns whether it had room."""
        handed = self._queue[0]
        try:
            receipt = self.partitions.send_checked(handed.data, *(handed.details or NO_DETAILS))
        except (ProducerQueueFullError, MemoryLimitError):
            return False
        except FAILURES as error:
            self._refused(self._queue.popleft(), error)
        else:
            self._took(self._queue.popleft(), receipt)
        return True

    def _took(self, handed: Handed, receipt: Receipt) -> None:
        self._taken_bytes += len(handed.data)
        handed.place(*place_of(receipt))

    def _wait_until_there_is_room(self) -> None:
        nursery = self.session.nursery
        if nursery is None:
            self._fail_rest()
        else:
            self._catching_up = trio.Event()
            nursery.start_soon(self._catch_up, self._catching_up)

    def _refused(self, handed: Handed, error: BaseException) -> None:
        self._taken_bytes += len(handed.data)
        self._refused_messages += 1
        if not isinstance(error, GemingaError):
            text = f"an interceptor, router or key reader of the producer raised {error!r}"
            failure: GemingaError = InvalidArgumentError(text, topic=self.producer.topic)
            failure.__cause__ = error
        else:
            failure = error
            if not isinstance(error, InvalidArgumentError):
                # The next message must check whether the producer still accepts any.
                self._messages_limit = -1
        handed.refuse(failure)

    async def _catch_up(self, done: trio.Event) -> None:
        """Send queued messages in order as the producer gets room."""
        try:
            while self._queue:
                handed = self._queue[0]
                details = handed.details or NO_DETAILS
                try:
                    receipt = await self.partitions.send_checked_soon(handed.data, *details)
                except FAILURES as error:
                    self._refused(self._queue.popleft(), error)
                else:
                    self._took(self._queue.popleft(), receipt)
        except BaseException:
            # The client is being closed.
            self._fail_rest()
            raise
        finally:
            self._catching_up = None
            done.set()

    def _fail_rest(self) -> None:
        while self._queue:
            self._refused(self._queue.popleft(), AlreadyClosedError("the client is closed"))

    async def caught_up(self) -> None:
        """Wait until the Trio producer has all queued messages, even those queued by an interrupted
        frame that has not woken the loop yet.
        """
        self._drain()
        while self._catching_up is not None:
            await self._catching_up.wait()

    async def wait_for_room(self) -> None:
        """Wait until a good part of the pending messages is done, or the producer has ended."""
        self._drain()
        if self._has_room_or_is_over():
            return
        frames = [each for part in self.partitions.parts for each in part.outbox.pending()]
        if frames:
            await frames[len(frames) // FREED_PART].wait()
        while not self._has_room_or_is_over():  # noqa: ASYNC110 - threads change it too
            await trio.sleep(ROOM_POLL_S)

    def _has_room_or_is_over(self) -> bool:
        messages, size_bytes = self._room()
        has_room = self._put_messages < messages and self._put_bytes < size_bytes
        return has_room or self._why_over() is not None

    async def ask(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function after the Trio producer has all queued messages."""
        await self.caught_up()
        return await function()

    async def aclose(self) -> None:
        """As Producer.aclose, after the Trio producer has all queued messages."""
        try:
            await self.caught_up()
            refused = self._refused_messages
            if refused and not isinstance(self._why_over(), AlreadyClosedError):
                logger.warning("%s: closed; %d messages were refused", self.producer.topic, refused)
        finally:
            await self.producer.aclose()

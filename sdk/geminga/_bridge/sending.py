"""Messages on their way from the program's threads to the loop, many in one go."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from geminga._bridge.calls import Session
from geminga._bridge.handed import Handed
from geminga._connection.retry import FATAL
from geminga._producing.receipt import Outgoing
from geminga.errors import (
    AlreadyClosedError,
    GemingaError,
    InvalidArgumentError,
    MemoryLimitError,
    ProducerQueueFullError,
)
from geminga.producer import Producer
from geminga_runtime.waiters import own_copy

T = TypeVar("T")

GRANT_MESSAGES_MAX = 4096
GRANT_BYTES_MAX = 4 * 1024 * 1024
"""After that much a sending thread counts anew what is pending."""
MARKS = 16
"""Waiting for room ends when that part of all pending messages is done, not at each of them."""
ROOM_POLL_S = 0.001


class Sender:
    """Hands the messages of one producer over. Bounded by the producer's `max_pending_messages`,
    over all partitions together, and by the client's memory limit, past it by GRANT_BYTES_MAX.
    """

    def __init__(self, session: Session, producer: Producer[Any]) -> None:
        self.session = session
        self.producer = producer
        self._queue: deque[Handed] = deque()
        # What sending threads change together is changed without a call in between: neither another
        # thread nor a signal handler comes in there, so there is no lock that a handler could find
        # held by the frame that it interrupts.
        self._granted_bytes = 0
        """All that were ever granted: what of them is not left has been put."""
        self._taken_bytes = 0
        self._grant_messages = 0
        self._grant_bytes = 0
        self._grants = 0
        """How often it was counted how many may be put."""
        self._drains = 0
        """How often the loop has begun to take messages."""
        self._signalled_for = -1
        """What that was before the loop was last asked to. No flag is set before it is asked: a
        signal handler in between would take the loop to be awake, and wait for ever."""
        self._has_failed = False
        """Whether the next message has to look first if the producer still takes any."""
        session.portal.forkables.add(self)
        # In the loop alone:
        self._in_hand = 0
        """Messages that are on their way from the queue to the Trio producer."""
        self._catching_up: trio.Event | None = None
        self._marks: deque[Outgoing] = deque()
        self._since_mark = 0
        self._mark_every = max(1, self._pending_max() // MARKS)

    def after_fork(self) -> None:
        """In the child: the next message is refused."""
        self._grant_messages = 0
        self._signalled_for = -1

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """What has no receipt has none ever, and nothing more is taken."""
        self._has_failed = True
        self._grant_messages = 0
        while self._queue:
            self._queue.popleft().refuse(error)
        for part in self.producer._parts:
            part.outbox.abandon(error)

    def _pending_max(self) -> int:
        producer = self.producer
        return producer._options.max_pending_messages * len(producer._parts)

    def _room_bytes(self) -> int:
        memory = self.producer._core.memory
        put_bytes = self._granted_bytes - self._grant_bytes
        return memory.limit_bytes - memory.used_bytes - (put_bytes - self._taken_bytes)

    @property
    def pending_messages(self) -> int:
        """Messages without receipt yet."""
        return len(self._queue) + self.producer.pending_messages

    # ---- in the program's threads ----

    def put(self, handed: Handed) -> GemingaError | None:
        """Hand a message over; returns why there is no room for it. Raises ForkError, and why
        nothing can be sent any more.
        """
        portal = self.session.portal
        if portal.is_forked:
            portal.refuse()
        size_bytes = len(handed.data)
        while not self._take_in(handed, size_bytes):
            full = self._grant()
            if full is not None:
                return full
        if self._signalled_for != self._drains:
            self._signal()
        return None

    def _take_in(self, handed: Handed, size_bytes: int) -> bool:
        """Queue a message; False if it has to be counted first whether there is room."""
        if self._grant_messages <= 0 or self._grant_bytes <= 0:
            return False
        self._grant_messages -= 1
        self._grant_bytes -= size_bytes
        self._queue.append(handed)
        return True

    def _signal(self) -> None:
        drains = self._drains
        self.session.portal.post(self._drain)
        self._signalled_for = drains

    def _grant(self) -> GemingaError | None:
        """Count how many messages may be put before it has to be counted again."""
        if self._has_failed:
            self._has_failed = False
            error = self._why_over()
            if error is not None:
                self._has_failed = True
                raise own_copy(error)
        grants = self._grants
        # What is in hand may be counted twice at this moment, but never not at all.
        messages = self._pending_max() - self._in_hand - self.pending_messages
        if messages <= 0:
            return ProducerQueueFullError(
                f"{self._pending_max()} messages wait for their receipts",
                topic=self.producer.topic,
            )
        room_bytes = self._room_bytes()
        if room_bytes <= 0:
            return MemoryLimitError(
                "the client's memory limit is used up", topic=self.producer.topic
            )
        messages = min(messages, GRANT_MESSAGES_MAX)
        room_bytes = min(room_bytes, GRANT_BYTES_MAX)
        # Unless another thread, or a signal handler, has counted meanwhile, and put some.
        if self._grants == grants:
            self._grants = grants + 1
            self._grant_messages = messages
            self._granted_bytes += room_bytes - self._grant_bytes
            self._grant_bytes = room_bytes
        return None

    def _why_over(self) -> GemingaError | None:
        """The error with which the Trio producer refuses every message, None if it takes some."""
        if not self.session.is_running:
            return AlreadyClosedError("the client is closed", topic=self.producer.topic)
        parts = self.producer._parts
        if len(parts) > 1 and not all(isinstance(part.error, FATAL) for part in parts):
            # Messages go to the others, and a partition that failed for a while is started anew.
            return None
        return parts[0].error

    # ---- in the loop ----

    def _drain(self) -> None:
        self._drains += 1
        if self._catching_up is not None:
            return
        queue = self._queue
        # As many as there are now: what comes meanwhile waits for the next turn of the loop, or a
        # busy thread would keep it from writing.
        left = len(queue)
        while left > 0:
            count = min(left, self._mark_every)
            left -= count
            if not self._send_some(count):
                self._wait_until_there_is_room()
                return
        if queue and self._signalled_for != self._drains:
            self._signal()

    def _send_some(self, count: int) -> bool:
        """Give that many to the Trio producer; returns whether it had room."""
        had_room = True
        while count > 0 and had_room:
            run, sent = self._send_run(count)
            if not sent:
                # One by one then: those of the run, or the one that has more than a payload.
                for _ in range(max(1, run)):
                    had_room = self._send_one()
                    if not had_room:
                        break
                    sent += 1
            count -= sent
        return had_room

    def _send_run(self, count: int) -> tuple[int, int]:
        """Messages that have nothing but a payload, many in one go: returns how many come next, and
        how many the producer took.
        """
        queue = self._queue
        self._in_hand = count
        run: list[Handed] = []
        while len(run) < count and queue[0].details is None:
            run.append(queue.popleft())
        placed = self.producer._send_run([handed.data for handed in run]) if run else []
        sent = taken_bytes = 0
        for outgoing, first, messages in placed:
            for index in range(first, first + messages):
                handed = run[sent]
                sent += 1
                taken_bytes += len(handed.data)
                handed.place(outgoing, index)
            self._mark(outgoing, messages)
        self._taken_bytes += taken_bytes
        if sent < len(run):
            queue.extendleft(reversed(run[sent:]))
        self._in_hand = 0
        return len(run), sent

    def _mark(self, outgoing: Outgoing, messages: int) -> None:
        """Whoever waits for room may wait for that frame, if it is long enough after the last one
        and not done yet.
        """
        marks = self._marks
        while marks and marks[0].is_settled:
            marks.popleft()
        self._since_mark += messages
        if self._since_mark >= self._mark_every and not outgoing.is_settled:
            self._since_mark = 0
            marks.append(outgoing)

    def _send_one(self) -> bool:
        """Give one to the Trio producer; returns whether it had room."""
        queue = self._queue
        self._in_hand = 1
        handed = queue.popleft()
        size_bytes = len(handed.data)
        try:
            if handed.details is None:
                receipt = self.producer._send_checked(handed.data, None, None)
            else:
                receipt = self.producer._send_checked(handed.data, *handed.details)
        except (ProducerQueueFullError, MemoryLimitError):
            queue.appendleft(handed)
            self._in_hand = 0
            return False
        except Exception as error:
            self._refused(handed, error)
        else:
            self._taken_bytes += size_bytes
            handed.place(receipt._outgoing, receipt._index)
            self._mark(receipt._outgoing, 1)
        self._in_hand = 0
        return True

    def _wait_until_there_is_room(self) -> None:
        nursery = self.session.nursery
        if nursery is None:
            self._fail_rest()
        else:
            self._catching_up = trio.Event()
            nursery.start_soon(self._catch_up, self._catching_up)

    def _refused(self, handed: Handed, error: Exception) -> None:
        self._taken_bytes += len(handed.data)
        if not isinstance(error, GemingaError):
            text = f"an interceptor, router or key reader of the producer raised {error!r}"
            failure: GemingaError = InvalidArgumentError(text, topic=self.producer.topic)
            failure.__cause__ = error
        else:
            failure = error
            if not isinstance(error, InvalidArgumentError):
                self._has_failed = True
                self._grant_messages = 0
        handed.refuse(failure)

    async def _catch_up(self, done: trio.Event) -> None:
        """Send what the producer has no room for yet, in order, as it gets room."""
        try:
            while self._queue:
                handed = self._queue[0]
                details = handed.details or (None, None)
                try:
                    receipt = await self.producer._send_checked_soon(handed.data, *details)
                except Exception as error:
                    self._refused(self._queue.popleft(), error)
                else:
                    self._taken_bytes += len(handed.data)
                    self._queue.popleft().place(receipt._outgoing, receipt._index)
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
        """Until the Trio producer has all that was handed over before, also what an interrupted
        frame has not told of yet.
        """
        self._drain()
        while self._catching_up is not None:
            await self._catching_up.wait()

    async def wait_for_room(self) -> None:
        """Until a good part of what is pending is done, or the producer is."""
        self._drain()
        if self._has_room_or_is_over():
            return
        marks = self._marks
        while marks and marks[0].is_settled:
            marks.popleft()
        if marks:
            await marks[0].wait()
        while not self._has_room_or_is_over():  # noqa: ASYNC110 - threads change it too
            await trio.sleep(ROOM_POLL_S)

    def _has_room_or_is_over(self) -> bool:
        if self.pending_messages < self._pending_max() and self._room_bytes() > 0:
            return True
        return self._has_failed and self._why_over() is not None

    async def ask(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function once the Trio producer has all that was handed over before."""
        await self.caught_up()
        return await function()

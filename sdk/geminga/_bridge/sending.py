"""Messages on their way from the program's threads to the loop, many in one go."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from geminga._bridge.calls import Session
from geminga._bridge.handed import NO_DETAILS, Handed
from geminga._connection.retry import FATAL
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
"""After that much it is looked again whether the client's memory limit leaves room."""
RUN_MAX = 1024
"""Messages that are given to the Trio producer in one go."""
FREED_PART = 16
"""Waiting for room ends when that part of all pending frames is done, not at each of them."""
ROOM_POLL_S = 0.001


class Sender:
    """Hands the messages of one producer over.

    The Trio producer has the room: `max_pending_messages` over all partitions together, and the
    client's memory limit, which may be passed by BYTES_IN_HAND_MAX. What is put here counts from
    then on. Counters only rise, so that one read too early says too little room, never too much.
    """

    def __init__(self, session: Session, producer: Producer[Any]) -> None:
        self.session = session
        self.producer = producer
        self.partitions = partitions_of(producer)
        self._queue: deque[Handed] = deque()
        # What sending threads change together is changed without a call in between: neither another
        # thread nor a signal handler comes in there, so there is no lock that a handler could find
        # held by the frame that it interrupts.
        self._put_messages = 0
        self._put_bytes = 0
        self._messages_limit = 0
        """What `_put_messages` may rise to before it is looked again how much room there is."""
        self._bytes_limit = 0
        self._taken_bytes = 0
        self._refused_messages = 0
        """Messages that the Trio producer never took."""
        self._drains = 0
        """How often the loop has begun to take messages."""
        self._signalled_for = -1
        """What that was before the loop was last asked to. No flag is set before it is asked: a
        signal handler in between would take the loop to be awake, and wait for ever."""
        self._catching_up: trio.Event | None = None
        session.portal.forkables.add(self)

    def after_fork(self) -> None:
        """In the child: the next message is refused."""
        self._messages_limit = -1
        self._signalled_for = -1

    def loop_ended(self, error: AlreadyClosedError) -> None:
        """What has no receipt has none ever, and nothing more is taken."""
        self._messages_limit = -1
        while self._queue:
            self._queue.popleft().refuse(error)
        for part in self.partitions.parts:
            part.outbox.abandon(error)

    @property
    def pending_messages(self) -> int:
        """Messages without receipt yet."""
        settled = self.partitions.settled_messages + self._refused_messages
        return max(0, self._put_messages - settled)

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
            full = self._look_for_room()
            if full is not None:
                return full
        if self._signalled_for != self._drains:
            self._signal()
        return None

    def _take_in(self, handed: Handed, size_bytes: int) -> bool:
        """Queue a message; False if it has to be looked first whether there is room."""
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
        """Raise the limits to what there is room for; returns why there is none."""
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
        """Up to which messages and bytes may be put. What was taken or is done meanwhile counts as
        if it weren't.
        """
        messages = self._refused_messages + self.partitions.settled_messages
        taken_bytes = self._taken_bytes
        memory = self.partitions.core.memory
        room_bytes = memory.limit_bytes - memory.used_bytes
        return self.partitions.pending_max + messages, taken_bytes + room_bytes

    def _why_over(self) -> GemingaError | None:
        """The error with which the Trio producer refuses every message, None if it takes some."""
        if not self.session.is_running:
            return AlreadyClosedError("the client is closed", topic=self.producer.topic)
        parts = self.partitions.parts
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
            run, sent = self._send_run(min(left, RUN_MAX))
            left -= max(1, run)
            # One by one then: those of the run, or the one that has more than a payload.
            for _ in range(max(1, run) - sent):
                if not self._send_one():
                    self._wait_until_there_is_room()
                    return
        if queue and self._signalled_for != self._drains:
            self._signal()

    def _send_run(self, count: int) -> tuple[int, int]:
        """Messages that have nothing but a payload, many in one go: returns how many come next, and
        how many the producer took.
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
                # As `Handed.place`, without a call: this stands on the hot path.
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
        """Give one to the Trio producer; returns whether it had room."""
        handed = self._queue[0]
        try:
            receipt = self.partitions.send_checked(handed.data, *(handed.details or NO_DETAILS))
        except (ProducerQueueFullError, MemoryLimitError):
            return False
        except Exception as error:
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

    def _refused(self, handed: Handed, error: Exception) -> None:
        self._taken_bytes += len(handed.data)
        self._refused_messages += 1
        if not isinstance(error, GemingaError):
            text = f"an interceptor, router or key reader of the producer raised {error!r}"
            failure: GemingaError = InvalidArgumentError(text, topic=self.producer.topic)
            failure.__cause__ = error
        else:
            failure = error
            if not isinstance(error, InvalidArgumentError):
                # The next message has to look first if the producer still takes any.
                self._messages_limit = -1
        handed.refuse(failure)

    async def _catch_up(self, done: trio.Event) -> None:
        """Send what the producer has no room for yet, in order, as it gets room."""
        try:
            while self._queue:
                handed = self._queue[0]
                details = handed.details or NO_DETAILS
                try:
                    receipt = await self.partitions.send_checked_soon(handed.data, *details)
                except Exception as error:
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
        """Call a function once the Trio producer has all that was handed over before."""
        await self.caught_up()
        return await function()

    async def aclose(self) -> None:
        """As Producer.aclose, once the Trio producer has all that was handed over before."""
        try:
            await self.caught_up()
            refused = self._refused_messages
            if refused and not isinstance(self._why_over(), AlreadyClosedError):
                logger.warning("%s: closed; %d messages were refused", self.producer.topic, refused)
        finally:
            await self.producer.aclose()

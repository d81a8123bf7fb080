"""Messages on their way from the program's threads to the loop, many in one go."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from geminga._encode import Extras
from geminga._faces.calls import Session
from geminga._receipt import Receipt
from geminga.errors import (
    AlreadyClosed,
    GemingaError,
    InvalidArgument,
    MemoryLimitExceeded,
    ProducerQueueFull,
)
from geminga.producer import Producer
from geminga_protocol.message_id import MessageId

T = TypeVar("T")

Details = tuple[Extras | None, int | None]
"""What describes a message, and its sequence id."""

GRANT_MESSAGES_MAX = 4096
GRANT_BYTES_MAX = 4 * 1024 * 1024
"""After that much a sending thread counts anew what is pending."""
MARKS = 16
"""Waiting for room ends when that part of all pending messages is done, not at each of them."""
ROOM_POLL_S = 0.001


class Handed:
    """A message that was handed over: what the loop's receipt will be, before and after there is
    one. Made in the program's thread, completed in the loop.
    """

    __slots__ = ("_outcome", "data", "details", "session")

    def __init__(self, session: Session, data: bytes, details: Details | None) -> None:
        self.session = session
        self.data = data
        self.details = details
        self._outcome: Receipt | GemingaError | list[Callable[[], object]] | None = None
        """Until there is one: what is to be called then."""

    def __repr__(self) -> str:
        if not self.is_done:
            return "<Receipt pending>"
        return f"<Receipt {self.error or self.message_id!r}>"

    @property
    def is_done(self) -> bool:
        """Whether the broker has answered, or the message has failed."""
        outcome = self._outcome
        return outcome.is_done if isinstance(outcome, Receipt) else isinstance(outcome, Exception)

    @property
    def error(self) -> GemingaError | None:
        """Why the message failed, None if it didn't (yet)."""
        outcome = self._outcome
        if isinstance(outcome, Receipt):
            return outcome.error
        return outcome if isinstance(outcome, GemingaError) else None

    @property
    def message_id(self) -> MessageId:
        """The message's id; raises what it failed with, and RuntimeError while it is pending."""
        outcome = self._outcome
        if isinstance(outcome, Receipt):
            return outcome.message_id
        if isinstance(outcome, GemingaError):
            raise outcome.with_traceback(None)
        raise RuntimeError("the message is still pending: wait() first")

    def settle(self, outcome: Receipt | GemingaError) -> None:
        """The Trio producer took it, or refused it."""
        waiting = self._outcome
        self._outcome = outcome
        self.data = b""
        if isinstance(waiting, list):
            for callback in waiting:
                self.on_done(callback)

    def on_done(self, callback: Callable[[], object]) -> None:
        """Have the loop call `callback` once it is done; called in the loop, or before the message
        is handed over.
        """
        outcome = self._outcome
        if isinstance(outcome, Receipt):
            outcome.add_done_callback(lambda _: callback())
        elif isinstance(outcome, list):
            outcome.append(callback)
        elif outcome is None:
            self._outcome = [callback]
        else:
            callback()


class Sender:
    """Hands the messages of one producer over. Bounded by the producer's `max_pending_messages`,
    over all partitions together, and by the client's memory limit, past it by GRANT_BYTES_MAX.
    """

    def __init__(self, session: Session, producer: Producer) -> None:
        self.session = session
        self.producer = producer
        self._queue: deque[Handed] = deque()
        self._lock = threading.Lock()
        """Between sending threads; the loop never takes it."""
        self._put_bytes = 0
        self._taken_bytes = 0
        self._grant_messages = 0
        self._grant_bytes = 0
        self._is_signalled = False
        self._broken: GemingaError | None = None
        # In the loop alone:
        self._catching_up: trio.Event | None = None
        self._marks: deque[Receipt] = deque()
        self._mark_every = max(1, self._pending_max() // MARKS)

    def _pending_max(self) -> int:
        producer = self.producer
        return producer._options.max_pending_messages * len(producer._parts)

    def _room_bytes(self) -> int:
        memory = self.producer._core.memory
        return memory.limit_bytes - memory.used_bytes - (self._put_bytes - self._taken_bytes)

    @property
    def pending_messages(self) -> int:
        """Messages without receipt yet."""
        return len(self._queue) + self.producer.pending_messages

    # ---- in the program's threads ----

    def put(self, handed: Handed) -> GemingaError | None:
        """Hand a message over; answers why there is no room for it. Raises ForkedClient, and why
        nothing can be sent any more.
        """
        portal = self.session.portal
        if portal.is_forked:
            portal.refuse()
        size_bytes = len(handed.data)
        with self._lock:
            if self._grant_messages <= 0 or self._grant_bytes <= 0 or self._broken is not None:
                full = self._grant()
                if full is not None:
                    return full
            self._grant_messages -= 1
            self._grant_bytes -= size_bytes
            self._put_bytes += size_bytes
            self._queue.append(handed)
        if not self._is_signalled:
            self._is_signalled = True
            try:
                portal.post(self._drain)
            except BaseException:
                self._is_signalled = False
                raise
        return None

    def _grant(self) -> GemingaError | None:
        """Count how many messages may be put before it has to be counted again."""
        broken = self._broken
        if broken is not None:
            raise type(broken)(str(broken), code=broken.code, topic=broken.topic)
        messages = self._pending_max() - self.pending_messages
        if messages <= 0:
            return ProducerQueueFull(
                f"{self._pending_max()} messages wait for their receipts",
                topic=self.producer.topic,
            )
        room_bytes = self._room_bytes()
        if room_bytes <= 0:
            return MemoryLimitExceeded(
                "the client's memory limit is used up", topic=self.producer.topic
            )
        self._grant_messages = min(messages, GRANT_MESSAGES_MAX)
        self._grant_bytes = min(room_bytes, GRANT_BYTES_MAX)
        return None

    # ---- in the loop ----

    def _drain(self) -> None:
        self._is_signalled = False
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
        if queue and not self._is_signalled:
            self._is_signalled = True
            self.session.portal.post(self._drain)

    def _send_some(self, count: int) -> bool:
        """Give that many to the Trio producer; answers whether it had room."""
        queue = self._queue
        send = self.producer._send_checked
        taken_bytes = 0
        receipt: Receipt | None = None
        had_room = True
        for _ in range(count):
            handed = queue.popleft()
            data = handed.data
            try:
                if handed.details is None:
                    receipt = send(data, None, None)
                else:
                    receipt = send(data, *handed.details)
            except (ProducerQueueFull, MemoryLimitExceeded):
                queue.appendleft(handed)
                had_room = False
                break
            except Exception as error:
                self._refused(handed, error)
            else:
                taken_bytes += len(data)
                handed.settle(receipt)
        self._taken_bytes += taken_bytes
        marks = self._marks
        while marks and marks[0].is_done:
            marks.popleft()
        if receipt is not None and not receipt.is_done:
            marks.append(receipt)
        return had_room

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
            text = f"the producer's own functions raised {error!r}"
            failure: GemingaError = InvalidArgument(text, topic=self.producer.topic)
            failure.__cause__ = error
        else:
            failure = error
            if not isinstance(error, InvalidArgument):
                self._broken = error
        handed.settle(failure)

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
                    self._queue.popleft().settle(receipt)
        except BaseException:
            # The client is being closed.
            self._fail_rest()
            raise
        finally:
            self._catching_up = None
            done.set()

    def _fail_rest(self) -> None:
        while self._queue:
            self._refused(self._queue.popleft(), AlreadyClosed("the client is closed"))

    async def caught_up(self) -> None:
        """Until the Trio producer has all that was handed over before."""
        while self._catching_up is not None:
            await self._catching_up.wait()

    async def wait_for_room(self) -> None:
        """Until a good part of what is pending is done, or the producer is."""
        if self._has_room_or_is_broken():
            return
        marks = self._marks
        while marks and marks[0].is_done:
            marks.popleft()
        if marks:
            try:
                await marks[0].wait()
            except GemingaError:
                pass
        while not self._has_room_or_is_broken():  # noqa: ASYNC110 - threads change it too
            await trio.sleep(ROOM_POLL_S)

    def _has_room_or_is_broken(self) -> bool:
        return self._broken is not None or (
            self.pending_messages < self._pending_max() and self._room_bytes() > 0
        )

    async def ask(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function once the Trio producer has all that was handed over before."""
        await self.caught_up()
        return await function()

"""Messages on their way from the program's threads to the loop, many in one go."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from geminga._faces.calls import Session
from geminga._receipt import Receipt
from geminga.errors import (
    AlreadyClosed,
    GemingaError,
    InvalidArgument,
    MemoryLimitExceeded,
    ProducerQueueFull,
)
from geminga.producer import MessageKeywords, Producer
from geminga_protocol.message_id import MessageId

T = TypeVar("T")

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

    __slots__ = ("_callbacks", "_error", "_receipt", "data", "described", "sequence_id", "session")

    def __init__(
        self, session: Session, data: bytes, sequence_id: int | None, described: MessageKeywords
    ) -> None:
        self.session = session
        self.data = data
        self.sequence_id = sequence_id
        self.described = described
        self._receipt: Receipt | None = None
        self._error: GemingaError | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    def __repr__(self) -> str:
        if not self.is_done:
            return "<Receipt pending>"
        return f"<Receipt {self.error or self.message_id!r}>"

    @property
    def is_done(self) -> bool:
        """Whether the broker has answered, or the message has failed."""
        receipt = self._receipt
        return receipt.is_done if receipt is not None else self._error is not None

    @property
    def error(self) -> GemingaError | None:
        """Why the message failed, None if it didn't (yet)."""
        receipt = self._receipt
        return receipt.error if receipt is not None else self._error

    @property
    def message_id(self) -> MessageId:
        """The message's id, as Receipt.message_id."""
        if self._receipt is not None:
            return self._receipt.message_id
        if self._error is not None:
            raise self._error.with_traceback(None)
        raise RuntimeError("the message is still pending: wait() first")

    def sent(self, receipt: Receipt) -> None:
        """The Trio producer took it."""
        self.data = b""
        self._receipt = receipt
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            self._tell(callback)

    def fail(self, error: GemingaError) -> None:
        """The Trio producer refused it."""
        self.data = b""
        self._error = error
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def on_done(self, callback: Callable[[], object]) -> None:
        """Have the loop call `callback` once it is done; called in the loop, or before the message
        is handed over.
        """
        if self._receipt is not None:
            self._tell(callback)
        elif self._error is not None:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def _tell(self, callback: Callable[[], object]) -> None:
        assert self._receipt is not None
        self._receipt.add_done_callback(lambda _: callback())


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
        self._since_mark = 0
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
        for _ in range(len(queue)):
            try:
                self._send_first()
            except (ProducerQueueFull, MemoryLimitExceeded):
                nursery = self.session.nursery
                if nursery is None:
                    self._fail_rest()
                else:
                    self._catching_up = trio.Event()
                    nursery.start_soon(self._catch_up, self._catching_up)
                return
        if queue and not self._is_signalled:
            self._is_signalled = True
            self.session.portal.post(self._drain)

    def _send_first(self) -> None:
        handed = self._queue[0]
        try:
            receipt = self.producer.send_nowait(
                handed.data, sequence_id=handed.sequence_id, **handed.described
            )
        except (ProducerQueueFull, MemoryLimitExceeded):
            raise
        except Exception as error:
            self._refused(self._queue.popleft(), error)
        else:
            self._sent(self._queue.popleft(), receipt)

    def _sent(self, handed: Handed, receipt: Receipt) -> None:
        self._taken_bytes += len(handed.data)
        handed.sent(receipt)
        self._since_mark += 1
        if self._since_mark >= self._mark_every:
            self._since_mark = 0
            marks = self._marks
            while marks and marks[0].is_done:
                marks.popleft()
            marks.append(receipt)

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
        handed.fail(failure)

    async def _catch_up(self, done: trio.Event) -> None:
        """Send what the producer has no room for yet, in order, as it gets room."""
        try:
            while self._queue:
                handed = self._queue[0]
                try:
                    receipt = await self.producer.send_soon(
                        handed.data, sequence_id=handed.sequence_id, **handed.described
                    )
                except Exception as error:
                    self._refused(self._queue.popleft(), error)
                else:
                    self._sent(self._queue.popleft(), receipt)
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

"""Sending, receiving and other calls, as seen by a program's thread.

Made by tools/faces.py from `_bridge/asyncs.py`: don't edit.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Self, TypeVar

import geminga.client
from geminga._acknowledging.ack_runs import MessageOrId, Run
from geminga._bridge.calls import Call, Closing, Session
from geminga._bridge.handed import Handed
from geminga._bridge.portal import portal
from geminga._bridge.receiving import Receiver
from geminga._bridge.sending import Sender, in_context
from geminga._bridge.thread_listening import Listening
from geminga._bridge.waiting import ThreadHost
from geminga._consuming.trio_listening import lanes_for
from geminga._entries.encode import Extras
from geminga._options.arguments import duration, positive_size
from geminga._producing.schema_encoding import prepared
from geminga.entry_batch import EntryBatch
from geminga.errors import AlreadyClosedError, OperationTimeoutError
from geminga.message import Message
from geminga.producer import MessageKeywords, Producer, partitions_of
from geminga_protocol.message_id import MessageId
from geminga_runtime.waiters import Promise, own_copy

T = TypeVar("T")
C = TypeVar("C")
K = TypeVar("K", bound=Closing)

QUEUED_MAX = 384
"""Queued messages after which `submit` lets the loop take them."""
BYTES_BETWEEN_TURNS = 128 * 1024
"""`submit` yields to the program's other tasks after this size; a message is 1 KiB at least."""


class ThreadBlock(ABC):
    """An object that is closed at the end of its block."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ThreadCalls(Session[K]):
    """A client of an ordinary program, of any kind."""

    def __init__(self, opening: AbstractAsyncContextManager[K]) -> None:
        self.host = ThreadHost()
        self._open_waiter = self.host.waiter()
        self.listenings: dict[Listening, None] = {}
        """The callers of the message listeners of the client's consumers."""
        super().__init__(portal(), opening, self._open_waiter.notify)
        self.portal.start(self.run, self)

    def opened(self) -> None:
        """Wait until the client is open."""
        self.portal.check_may_wait()
        try:
            self._open_waiter.wait(self.portal)
        except BaseException:
            if not self.portal.is_gone:
                self.portal.post(self.begin_closing)
            raise
        if self.error is not None:
            raise own_copy(self.error)

    def call(self, function: Callable[[], Awaitable[T]], *, closes: bool = False) -> T:
        """Run a coroutine function in the loop; returns its result. Interrupted, the
        function is cancelled too.
        """
        self.portal.check_may_wait()
        waiter = self.host.waiter()
        call = Call(function, waiter.notify, closes)
        try:
            self.portal.post(self.spawn, call)
            waiter.wait(self.portal)
        except BaseException:
            if not self.portal.is_gone:
                self.portal.post(self.abandon, call)
            raise
        return call.result()

    def close(self) -> None:
        """Close the client. Idempotent; in a forked child there is nothing to close."""
        if self.portal.is_forked or not self.is_running:
            return
        self.portal.check_may_wait()
        for listening in list(self.listenings):
            listening.stop()
        waiter = self.host.waiter()
        # It may end meanwhile, with its loop.
        with suppress(AlreadyClosedError):
            self.portal.post(self.begin_closing)
            self.portal.post(self.on_end, waiter.notify)
            waiter.wait(self.portal)


class ThreadSession(ThreadCalls[geminga.client.Client]):
    """A client that sends and receives."""


class Receipt(Handed, eq=False, gc=False):
    """The receipt of a submitted message; created by `submit` and `send_nowait`."""

    @property
    def _home(self) -> ThreadSession:
        session = self.session
        assert isinstance(session, ThreadSession)
        return session

    def wait(self) -> MessageId:
        """Wait until the broker has stored the message; returns its id, or raises its error.

        Giving up the wait doesn't withdraw the message.
        """
        if not self.is_done:
            session = self._home
            session.portal.check_may_wait()
            waiter = session.host.waiter()
            session.portal.post(self.on_done, waiter.notify)
            waiter.wait(session.portal)
        return self.message_id

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback(receipt)` in the client's own thread once it is done.

        The callback must be short and must not raise; an error is logged.
        """
        host = self._home.host
        self.session.portal.post(self.on_done, lambda: host.tell(callback, self))


class ThreadSender(Sender):
    """The implementation of a producer's methods."""

    session: ThreadSession

    def __init__(self, session: ThreadSession, producer: Producer[Any]) -> None:
        super().__init__(session, producer)
        self.takes_bytes = self.partitions.takes_bytes
        self._since_turn = 0
        self._room_lock = session.host.lock()

    def send(self, handed: Receipt) -> MessageId:
        """As Producer.send."""
        self.session.portal.check_may_wait()
        waiter = self.session.host.waiter()
        handed.on_done(waiter.notify)
        if self.put(handed) is not None:
            self._put_when_there_is_room(handed)
        waiter.wait(self.session.portal)
        return handed.message_id

    def send_at_once(self, data: bytes) -> Receipt | None:
        """Queue a message with a payload only; None if `submit` must do it, as there is no room or
        it is time to yield.
        """
        size_bytes = len(data)
        since_turn = self._since_turn + (size_bytes if size_bytes > 1024 else 1024)
        if since_turn >= BYTES_BETWEEN_TURNS:
            return None
        handed = Receipt(self.session, data, None)
        # `_take_in`, inlined: this is on the hot path.
        if self._put_messages >= self._messages_limit or self._put_bytes >= self._bytes_limit:
            return None
        self._put_messages += 1
        self._put_bytes += size_bytes
        self._queue.append(handed)
        self._since_turn = since_turn
        if self._signalled_for != self._drains:
            self._signal()
        return handed

    def submit(self, handed: Receipt) -> Receipt:
        """As Producer.submit."""
        size_bytes = len(handed.data)
        self._since_turn += size_bytes if size_bytes > 1024 else 1024
        if self._since_turn >= BYTES_BETWEEN_TURNS:
            self._since_turn = 0
            if len(self._queue) < QUEUED_MAX:
                self.session.host.turn()
            elif not self.session.portal.is_own_thread:
                # Otherwise the loop would get the interpreter's lock after 5 ms only, and the
                # broker would be idle meanwhile.
                waiter = self.session.host.waiter()
                self.session.portal.post(waiter.notify)
                waiter.wait(self.session.portal)
        if self.put(handed) is not None:
            self._put_when_there_is_room(handed)
        return handed

    def made(self, data: object, sequence_id: int | None, described: MessageKeywords) -> Receipt:
        """The message to be queued. Raises InvalidArgumentError."""
        payload, extras = prepared(self.partitions.options.schema, data, sequence_id, described)
        if extras is not None or sequence_id is not None:
            return Receipt(self.session, payload, (extras, sequence_id))
        return Receipt(self.session, payload, None)

    def all_prepared(self, values: Iterable[object]) -> list[tuple[bytes, Extras | None]]:
        """The messages of `submit_many`. Raises InvalidArgumentError and MessageTooBigError."""
        return self.partitions.all_prepared(values)

    def _put_when_there_is_room(self, handed: Receipt) -> None:
        self.session.portal.check_may_wait()
        # One waiter at a time: waking all for a room of one would be costly.
        with self._room_lock:
            while self.put(handed) is not None:
                self.session.call(self.wait_for_room)

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function after the Trio producer has all queued messages."""
        return self.session.call(lambda: self.ask(function))

    def close(self) -> None:
        """As Producer.aclose."""
        if not self.session.portal.is_forked and self.session.is_running:
            with suppress(AlreadyClosedError):
                self.session.call(self.aclose, closes=True)


class ThreadSenderInContext(ThreadSender):
    """For a producer with interceptors: they are called in the context of the message's sender."""

    def __init__(self, session: ThreadSession, producer: Producer[Any]) -> None:
        super().__init__(session, producer)
        self.takes_bytes = False

    def made(self, data: object, sequence_id: int | None, described: MessageKeywords) -> Receipt:
        """As ThreadSender.made."""
        payload, extras = prepared(self.partitions.options.schema, data, sequence_id, described)
        return Receipt(self.session, payload, (in_context(extras), sequence_id))

    def all_prepared(self, values: Iterable[object]) -> list[tuple[bytes, Extras | None]]:
        """As ThreadSender.all_prepared."""
        ready = super().all_prepared(values)
        return [(payload, in_context(extras)) for payload, extras in ready]


def sender_of(session: ThreadSession, producer: Producer[Any]) -> ThreadSender:
    """The sender of a producer."""
    kind = ThreadSenderInContext if partitions_of(producer).options.interceptors else ThreadSender
    return kind(session, producer)


class ThreadReceiver(Receiver):
    """The implementation of the methods of consumers and readers."""

    session: ThreadSession
    _listening: Listening | None = None

    def receive(self, timeout_s: float | None) -> Message:
        """As Consumer.receive. Suspends if no message is prefetched, so at least after every
        AHEAD_MAX messages.
        """
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        message = self.take()
        return message if message is not None else self.receive_slowly(timeout_s)

    def receive_slowly(self, timeout_s: float | None) -> Message:
        """`receive` without a prefetched message."""
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._fill(1, until_s)
            message = self.take()
            if message is not None:
                return message
            if time.monotonic() >= until_s:
                raise OperationTimeoutError(f"no message within {timeout_s} s")

    def _fill(self, messages_max: int, until_s: float) -> None:
        left_s = None if until_s == math.inf else max(0.0, until_s - time.monotonic())
        self.session.call(lambda: self.fill(messages_max, left_s))

    def receive_batch(
        self, max_messages: int | None, max_bytes: int | None, wait_s: float | None
    ) -> list[Message]:
        """As Consumer.receive_batch."""
        limits = self.receiving.batch_limits(max_messages, max_bytes, wait_s)
        messages_max, bytes_max = limits.messages_max, limits.bytes_max
        if limits.fills:
            self.session.call(lambda: self.fill_batch(limits))
            return self.take_many(messages_max, bytes_max)
        self.session.host.turn()
        until_s = time.monotonic() + limits.wait_s
        taken = self.take_many(messages_max, bytes_max)
        while not taken:
            self._fill(messages_max, until_s)
            taken = self.take_many(messages_max, bytes_max)
            if time.monotonic() >= until_s:
                break
        return taken

    def read_batches(self, timeout_s: float | None, bytes_max: float) -> list[EntryBatch]:
        """As Reader.read_batches."""
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        positive_size(bytes_max, "bytes_max")
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if timeout_s is None else max(0.0, until_s - time.monotonic())
            self.session.call(partial(self.fill_entries, bytes_max, left_s))
            entries = self.take_entries(bytes_max)
            if entries:
                return entries
            if time.monotonic() >= until_s:
                raise OperationTimeoutError(f"no message within {timeout_s} s")

    def listen(self, consumer: C, listener: Callable[[C, Message], object]) -> None:
        """Call the listener with each message from now on."""
        host = self.session.host
        self.receiving.is_listened = True
        options = self.receiving.subscription.options
        source = ThreadReceiver(self.session, self.consumer, for_listener=True)
        self._listening = Listening(
            host,
            lambda: source.receive(None),
            lambda message: host.run(listener, consumer, message),
            self.refuse,
            lanes_for(options),
            options.message_listener_concurrency,
        )
        self.session.listenings[self._listening] = None
        for _ in range(options.message_listener_concurrency):
            host.start(self._listening.work)

    def stop_listening(self) -> None:
        """Stop calling the listener; waits for running calls."""
        if self._listening is not None:
            self._listening.stop()
            self.session.listenings.pop(self._listening, None)

    def next(self) -> Message:
        """As Consumer.__next__."""
        try:
            return self.receive(None)
        except AlreadyClosedError:
            raise StopIteration from None

    def acknowledge_for_receipts(self, runs: list[Run]) -> None:
        """Acknowledge, and wait for the broker's receipts."""
        groups: list[Promise[None] | None] = []
        # Posted now, not when the call runs: later posts must follow it.
        self.session.portal.post(self.note, runs, groups)
        self.session.call(lambda: self.receipts_of(groups))

    def refuse(self, message: MessageOrId) -> None:
        """As Consumer.negative_acknowledge."""
        self.receiving.part_of(message)
        self.session.portal.post(self.negative_acknowledge, message)

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function after the Trio consumer has all acknowledgements."""
        return self.session.call(lambda: self.ask(function))

    def close(self) -> None:
        """As Consumer.aclose."""
        if not self.session.portal.is_forked and self.session.is_running:
            self.session.portal.check_may_wait()
            self.stop_listening()
            with suppress(AlreadyClosedError):
                self.session.call(self.aclose, closes=True)

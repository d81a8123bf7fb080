"""`Reader` of the official client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import geminga.blocking
from geminga.errors import AlreadyClosedError, GemingaError, OperationTimeoutError
from geminga.pulsar._checks import check_type, closing_of
from geminga.pulsar._consumer import place_of
from geminga.pulsar._errors import officially
from geminga.pulsar._ids import MessageId
from geminga.pulsar._listening import Lane
from geminga.pulsar._message import Message
from geminga.pulsar.exceptions import AlreadyClosed, InvalidConfiguration, Timeout
from geminga.pulsar.schema.schema import Schema

logger = logging.getLogger("geminga")


class Reader:
    """Reads a topic from a message on. Created by `Client.create_reader`."""

    _reader: geminga.blocking.Reader[Any]
    _schema: Schema
    _topic: str
    _lane: Lane | None = None
    """Of its listener."""
    _is_closed = False
    _forget: Callable[[], object]
    """Take it out of the client's list."""

    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return self._topic

    @officially
    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message. Raises Timeout, AlreadyClosed, and InvalidConfiguration if there is a
        `reader_listener`.
        """
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
        if self._lane is not None:
            raise InvalidConfiguration("all messages go to reader_listener")
        timeout_s = None if timeout_millis is None else max(0, timeout_millis) / 1000
        try:
            return self._made(self._reader.read_next(timeout_s))
        except OperationTimeoutError:
            raise Timeout(f"Pulsar error: TimeOut: no message within {timeout_millis} ms") from None

    @officially
    def has_message_available(self) -> bool:
        """Whether there is a message after the last read one."""
        return self._reader.has_message_available()

    @officially
    def seek(self, messageid: MessageId | int) -> None:
        """Continue behind a message, or at a publish time in ms since 1970."""
        self._check_open()
        self._reader.seek(place_of(messageid))

    @officially
    def close(self) -> None:
        """Leave the topic. Raises AlreadyClosed the second time."""
        self._check_open()
        with closing_of(self, [self._lane]):
            self._reader.close()
        self._forget()

    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions."""
        return not self._is_closed and self._reader.is_connected

    def _made(self, message: Any) -> Message:
        return Message._made(message, self._schema, None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the reader is closed")

    def _listen(self, listener: Callable[[Reader, Message], object], lane: Lane) -> None:
        """Call the listener with each message, in a thread, until the reader is closed."""
        self._lane = lane

        def work() -> None:
            while True:
                try:
                    message = self._made(self._reader.read_next())
                except AlreadyClosedError:
                    return
                except GemingaError as error:
                    logger.error("%s: its listener ends: %s", self._topic, error)
                    return
                lane.run(partial(listener, self, message))

        threading.Thread(target=work, name="geminga reader listener", daemon=True).start()

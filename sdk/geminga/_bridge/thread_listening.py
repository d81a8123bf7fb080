"""Calls a program's message listener (spec SDK-20; MessageListener and ConsumerBase of the Java
client).

Made by tools/faces.py from `_consuming/listening.py`: don't edit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Protocol

from geminga._consuming.lanes import Lanes
from geminga._options.callbacks import FAILURES
from geminga.errors import AlreadyClosedError, GemingaError
from geminga.message import Message

logger = logging.getLogger("geminga")

WAITING_PER_WORKER = 16
"""Received messages that may wait for their lane, per call that may run concurrently."""

_BUSY: set[Hashable] = set()
"""Workers of any listener that is being called. They don't wait for one another: two listeners that
close each other's consumers would wait for ever."""


class Happening(Protocol):
    """A one-time event."""

    def set(self) -> object:
        """Set the event."""
        ...

    def wait(self) -> object:
        """Wait until it is set."""
        ...


class Surroundings(Protocol):
    """The program's concurrency: Trio, asyncio or threads."""

    def event(self) -> Happening:
        """A new event."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """A new lock between workers."""
        ...

    def worker(self) -> Hashable:
        """The current worker."""
        ...


class Listening:
    """Workers that receive and call the listener, until the subscription ends or `stop`."""

    def __init__(
        self,
        surroundings: Surroundings,
        receive: Callable[[], Message],
        call: Callable[[Message], object],
        refuse: Callable[[Message], object],
        lanes: Lanes | None,
        concurrency: int,
    ) -> None:
        """Without `lanes` there is one worker, and all messages are in order. `refuse` is called
        with a message for which the listener raised an error.
        """
        self._surroundings = surroundings
        self._receive = receive
        self._call = call
        self._refuse = refuse
        self._lanes = lanes
        self._waiting_max = WAITING_PER_WORKER * concurrency
        self._receiving = surroundings.lock()
        self._guard = threading.Lock()
        """Between workers; not used by `stop`, as a signal handler may interrupt it and call it.
        """
        self._running: set[Hashable] = set()
        self._is_over = False
        self._idle = surroundings.event()
        """Set after the end, when no call runs."""
        self._room: Happening | None = None

    def work(self) -> None:
        """Run one of the workers."""
        lane: Hashable | None = None
        try:
            while not self._is_over:
                if self._lanes is None:
                    message: Message | None = self._receive()
                else:
                    lane, message = self._next(self._lanes)
                if message is None or not self._begin():
                    continue
                try:
                    self._handle(message)
                finally:
                    self._end(lane)
        except AlreadyClosedError:
            pass
        except GemingaError as error:
            logger.error("the message listener has stopped: %s", error)

    def _next(self, lanes: Lanes) -> tuple[Hashable | None, Message | None]:
        with self._guard:
            found = lanes.take()
            room = None
            if found is None and lanes.waiting >= self._waiting_max:
                if self._room is None:
                    self._room = self._surroundings.event()
                room = self._room
                if self._is_over:
                    room.set()
        if found is not None:
            return found
        if room is not None:
            room.wait()
            return None, None
        # One at a time, so that messages are put in the order of their arrival.
        with self._receiving:
            message = self._receive()
            with self._guard:
                lanes.put(message)
                return lanes.take() or (None, None)

    def _begin(self) -> bool:
        with self._guard:
            # Added before the check: `stop` sets the end before it reads the running workers.
            self._running.add(self._surroundings.worker())
            _BUSY.add(self._surroundings.worker())
            if self._is_over:
                self._leave()
            return not self._is_over

    def _leave(self) -> None:
        self._running.discard(self._surroundings.worker())
        _BUSY.discard(self._surroundings.worker())
        if self._is_over and not self._running:
            self._idle.set()

    def _end(self, lane: Hashable | None) -> None:
        with self._guard:
            self._leave()
            if self._lanes is not None:
                self._lanes.done(lane)
            room, self._room = self._room, None
        if room is not None:
            room.set()

    def _handle(self, message: Message) -> None:
        try:
            self._call(message)
        except FAILURES:
            logger.exception("%s: the message listener failed", message.topic_name)
            try:
                self._refuse(message)
            except GemingaError as error:
                logger.debug("negative acknowledgement after a failed listener: %s", error)

    def stop(self) -> None:
        """Stop calling the listener, and wait for running calls, unless called by a listener.
        Idempotent.
        """
        self._is_over = True
        room = self._room
        if room is not None:
            room.set()
        if self._running and self._surroundings.worker() not in _BUSY:
            self._idle.wait()

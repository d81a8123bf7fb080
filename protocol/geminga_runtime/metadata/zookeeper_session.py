"""A session with ZooKeeper: its state, and calls whose outcome is known or said to be unknown."""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NoReturn

import trio
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)

from geminga_runtime.metadata.api import (
    MetadataError,
    SessionExpired,
    SessionPhase,
    StoreUnavailable,
)
from geminga_runtime.metadata.room import Room
from geminga_runtime.metadata.session import SessionTracker
from geminga_runtime.metadata.witness.handle import Witness
from geminga_runtime.metadata.zookeeper_link import Link
from geminga_runtime.metadata.zookeeper_wire import NotSent, Request
from geminga_runtime.observing.slow import SlowOperations
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)
_slow = SlowOperations(_log)

LOST = (NotSent, ConnectionLoss, SessionExpiredError, SessionMovedError)
"""A request's errors if its connection has ended, or does so now."""

_EXPECTED = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)

REQUESTS_MAX = 128
"""Requests under way, beside those of watches."""

REQUESTS_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of requests under way; further callers wait for room."""

CLOSE_S = 2.0
"""How long a close waits for the server; then the witness ends the session, or its time-out does. A
process that is stopped while no server answers waits for it."""


class ZooKeeperSession:
    """Follows the link, and sends requests over it. `connected` is called after each connection,
    `changed` and `overflowed` for what watches bring. A witness ends the session if this process
    can't.
    """

    def __init__(
        self,
        connect_string: str,
        session_timeout_s: float,
        *,
        connected: Callable[[], None],
        changed: Callable[[int, str], None],
        overflowed: Callable[[], None],
        witness: Witness | None = None,
    ) -> None:
        self.session_id: int | None = None
        self.on_change = changed
        self.on_overflow = overflowed
        self._connected = connected
        self._witness = witness
        self._link = Link(connect_string, session_timeout_s, self)
        self._clock_offset = trio.current_time() - time.monotonic()
        self.tracker = SessionTracker(
            SessionPhase.LOST, deadline=self._deadline, on_loss=self._on_loss
        )
        self._connection = 0
        self._under_way: dict[Request, None] = {}
        self._room = Room(REQUESTS_MAX, REQUESTS_BYTES_MAX)

    def _deadline(self) -> float:
        contact_at = self._link.contact_at
        if self.session_id not in (None, self._link.session_id):
            return trio.current_time()  # that was contact of the next session
        return contact_at + self._link.timeout_s + self._clock_offset

    async def open(self, timeout_s: float) -> None:
        """Begin to connect. Raises StoreUnavailable, and stops, if there is no session in time."""
        try:
            if self._witness is not None:
                await self._witness.start()
            self._link.start()
            with trio.move_on_after(timeout_s):
                await self.tracker.wait_session()
                return
            raise StoreUnavailable(
                f"no session with ZooKeeper after {timeout_s:g} s: check that it runs, and that "
                "hosts and ports are those for its clients"
            )
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the session, after earlier requests. Closes even when cancelled."""
        self.tracker.close()
        with trio.move_on_after(CLOSE_S, shield=True):
            # Not the threads that everybody shares: all of them may be busy.
            await trio.to_thread.run_sync(
                self._stop, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        self._abort(self._connection)
        if self._witness is not None:
            await self._witness.aclose()

    def _stop(self) -> None:
        try:
            self._link.stop()
        except Exception:  # kazoo's own; the session ends by its time-out
            _log.warning("the session with ZooKeeper was not closed", exc_info=True)

    # From the link.

    def on_up(self, connection: int, session_id: int) -> None:
        """Follower.on_up."""
        self._connection = connection
        _ = self.tracker.session  # finds a loss by our own clock
        if session_id == self._link.ended:
            self._link.end_session(session_id)
            return
        if self.session_id not in (None, session_id):
            self.on_gone(connection - 1, self.session_id)
        if self._witness is not None and session_id != self.session_id:
            self._witness.tell(session_id, self._link.password, self._link.timeout_s)
        self.session_id = session_id
        self.tracker.connect()
        self._connected()

    def on_down(self, connection: int) -> None:
        """Follower.on_down."""
        self.tracker.suspend()
        self._abort(connection)

    def on_gone(self, connection: int, session_id: int | None) -> None:
        """Follower.on_gone."""
        if session_id == self.session_id is not None:
            self.session_id = None
            self.tracker.lose()
        self._abort(connection)

    def _on_loss(self) -> None:
        lost, self.session_id = self.session_id, None
        if lost is not None and lost == self._link.session_id:
            self._link.end_session(lost)  # lost by our own clock: the server may hold it still

    def _abort(self, connection: int) -> None:
        """What was not answered on a connection never will be."""
        for request in [each for each in self._under_way if each.connection <= connection]:
            request.finish(None, ConnectionLoss())

    # Requests.

    def send(self, content: object, done: Callable[[object, Exception | None], None]) -> None:
        """Send on the present connection. `done` gets the answer, or an error: NotSent if it
        surely has no effect, ConnectionLoss if that is unknown.
        """

        def finish(value: object, error: Exception | None) -> None:
            if request not in self._under_way:
                return
            del self._under_way[request]
            lost = isinstance(error, ConnectionLoss | SessionExpiredError)
            done(value, NotSent() if lost and not request.is_sent else error)

        request = Request(self._link, self._connection, finish)
        self._under_way[request] = None
        self._link.submit(content, request)

    async def read(self, content: object, size_bytes: int) -> object:
        """The answer to a request that changes nothing: it is sent again on a new connection.
        Raises as `change`.
        """
        while True:
            try:
                return await self._call(content, size_bytes)
            except LOST:
                continue

    async def change(self, content: object, size_bytes: int, epoch: int | None = None) -> object:
        """The answer to a change. It is sent again only when it surely was not sent, and never in
        a later session: what was decided in this one may be another process's there.

        Raises kazoo's error for a version or a node, StoreUnavailable, SessionExpired of `epoch`
        or after a close, MetadataError for what else the server refuses.
        """
        began = self.tracker.session.epoch
        while True:
            try:
                answer = await self._call(content, size_bytes, epoch, began)
            except NotSent:
                continue
            except LOST as error:
                if self.tracker.session.phase is SessionPhase.CLOSED:
                    _raise_closed()
                raise StoreUnavailable(
                    "the connection to ZooKeeper was lost: the change may have taken effect"
                ) from error
            # A node of a session that ended meanwhile is deleted, or will be.
            self.tracker.check_epoch(epoch)
            return answer

    async def arm(self, content: object) -> None:
        """Send the request of a watch. Without a connection that is left to the next one.

        Raises MetadataError if the server refuses it.
        """
        if self.tracker.session.phase is not SessionPhase.CONNECTED:
            await trio.lowlevel.checkpoint()
            return
        promise: Promise[None] = Promise()

        def done(_value: object, error: Exception | None) -> None:
            if error is None or isinstance(error, LOST):
                promise.resolve(None)
            else:
                refused = MetadataError(f"ZooKeeper refuses to watch: {type(error).__name__}")
                promise.reject(refused)

        self.send(content, done)
        await promise.wait()

    def disarm(self, content: object) -> None:
        """Send the request to forget a watch. A server forgets those of a lost connection."""
        if self.tracker.session.phase is SessionPhase.CONNECTED:
            self.send(content, lambda _value, _error: None)

    async def _enter(self, size_bytes: int, epoch: int | None, began: int | None) -> None:
        """Wait for room and a connection of that epoch, in the session of `began`; take the room.
        A turn of the loop only if it waits: for the answer each caller does.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            session = self.tracker.session
            if session.phase is not SessionPhase.CONNECTED:
                session = await self.tracker.wait_connected()
            if session.phase is SessionPhase.CLOSED:
                _raise_closed()
            self.tracker.check_epoch(epoch)
            if session.phase is SessionPhase.LOST:
                raise StoreUnavailable("there is no session with ZooKeeper; nothing was sent")
            if began not in (None, session.epoch):
                raise StoreUnavailable("the session with ZooKeeper is a new one; nothing was sent")
            if self._room.take(size_bytes):
                return
            await self._room.acquire(size_bytes)
            now = self.tracker.session
            if (
                now.phase is SessionPhase.CONNECTED
                and epoch in (None, now.epoch)
                and began in (None, now.epoch)
            ):
                return
            self._room.release(size_bytes)

    async def _call(
        self, content: object, size_bytes: int, epoch: int | None = None, began: int | None = None
    ) -> object:
        await self._enter(size_bytes, epoch, began)
        promise: Promise[object] = Promise()
        sent_s = time.monotonic()

        def done(value: object, error: Exception | None) -> None:
            self._room.release(size_bytes)
            _slow.ended(time.monotonic() - sent_s, "ZooKeeper's %s", type(content).__name__)
            if error is None:
                promise.resolve(value)
            else:
                promise.reject(error)

        self.send(content, done)
        try:
            return await promise.wait()
        except LOST:
            raise
        except BadArgumentsError as error:
            path = getattr(content, "path", "")
            raise ValueError(f"ZooKeeper takes no such path: {path!r}") from error
        except ZookeeperError as error:
            if isinstance(error, _EXPECTED):
                raise
            raise MetadataError(f"ZooKeeper refuses: {type(error).__name__}") from error
        except Exception as error:  # kazoo's thread sets any
            raise StoreUnavailable(
                f"ZooKeeper's answer can't be read: {type(error).__name__}"
            ) from error


def _raise_closed() -> NoReturn:
    raise SessionExpired("the store is closed")

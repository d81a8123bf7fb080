"""Stands for kazoo beneath the product's `ZooKeeperMetadataStore`: the client's end of connections
to the twin of ZooKeeper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import trio
from kazoo.exceptions import SessionExpiredError, ZookeeperError
from kazoo.protocol.serialization import Create2, Delete, SetData

from geminga_runtime.metadata import zookeeper, zookeeper_session
from geminga_runtime.metadata.zookeeper_link import Follower
from geminga_runtime.metadata.zookeeper_session import CLOSE_S, ZooKeeperSession
from geminga_runtime.metadata.zookeeper_wire import NotSent, Request

from .keeper import KEEPER, Keeper, KeeperSession

Deliver = Callable[[], None]
RETRY_S = 0.2
MISSED_TOLD_S = 1.0
"""Within so long a client is told that it missed changes."""


class Wire:
    """One connection. Once something is lost on it, so is all that comes behind."""

    def __init__(self, keeper: Keeper, owner: str, link: SimLink) -> None:
        self.owner = owner
        self.session: KeeperSession | None = None
        self.is_open = True
        """At the client's end."""
        self.received_s = trio.current_time()
        self._keeper = keeper
        self._link = link
        self._sent = {True: 0, False: 0}
        self._arrived = {True: 0, False: 0}

    def up(self, deliver: Deliver, kind: str) -> None:
        """To the server, which goes on to execute what was sent on a connection that is gone."""
        self._send(deliver, kind, is_up=True)

    def down(self, deliver: Deliver, kind: str) -> None:
        """To the client."""

        def arrive() -> None:
            if self.is_open:
                self.received_s = trio.current_time()
                deliver()

        self._send(arrive, kind, is_up=False)

    def _send(self, deliver: Deliver, kind: str, *, is_up: bool) -> None:
        number = self._sent[is_up]
        self._sent[is_up] += 1

        def arrive() -> None:
            if self._arrived[is_up] == number:
                self._arrived[is_up] += 1
                deliver()

        ends = (self.owner, KEEPER) if is_up else (KEEPER, self.owner)
        self._keeper.network.send(*ends, arrive, kind)

    def lose(self) -> None:
        """The next request never arrives, nor does what comes behind it."""
        self._sent[True] += 1

    def tell(self, kind: int, path: str) -> None:
        """A change."""
        self.down(lambda: self._link.changed(kind, path), "change")


class SimLink:
    """See `zookeeper_link.Link`."""

    keeper: Keeper
    """The ensemble of this run."""

    def __init__(self, connect_string: str, session_timeout_s: float, follower: Follower) -> None:
        self.connection = 0
        self.contact_at = -math.inf
        self.session_id: int | None = None
        self.timeout_s = session_timeout_s
        self.ended: int | None = None
        self.owner = connect_string.partition(":")[0]
        self._network = self.keeper.network
        self._rng = self._network.rng
        self._follower = follower
        self._known: int | None = None
        """The session that the next connection asks for."""
        self._wire: Wire | None = None
        self._asked: dict[Request, None] = {}
        """Requests without an answer."""
        self.keeper.links[self.owner] = self
        self._is_stopped = False
        self._to_miss = 0
        self._to_lose = 0
        self._to_answer = 0
        self._to_send = 0
        self._unsent: tuple[type[object] | None, str] = (None, "")
        """The next request of this kind under this path never arrives."""

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._wire is not None

    # ---- for ZooKeeperSession ----

    def start(self) -> None:
        """Begin to connect."""
        self._connect()

    def submit(self, content: object, request: Request) -> None:
        """Send a request."""
        wire = self._wire
        if wire is None or request.connection != self.connection:
            request.set_exception(NotSent())
            return
        request.is_sent = True
        self._asked[request] = None
        sent_s = trio.current_time()

        def execute() -> None:
            try:
                result = self.keeper.execute(wire, content)
            except ZookeeperError as error:
                refused = error
                wire.down(lambda: answer(refused), "refusal")
            else:
                if self._loses(content):
                    wire.down(self._drop, "reset")
                else:
                    wire.down(lambda: answer(None, result), "answer")

        def answer(error: Exception | None, result: object = None) -> None:
            self.contact_at = max(self.contact_at, sent_s)
            self._asked.pop(request, None)
            if isinstance(error, SessionExpiredError):
                self._expired()
            elif error is not None:
                request.set_exception(error)
            else:
                request.set(result)

        if self._is_lost(content):
            wire.lose()
            self._later(RETRY_S, self._drop)
            return
        wire.up(execute, type(content).__name__)

    def end_session(self, session_id: int) -> None:
        """Close that session at the next connection, and drop the present one."""
        self.ended = session_id
        self._drop()

    def post(self, call: Deliver) -> None:
        """In the loop."""
        call()

    async def close(self) -> None:
        """End the session, if the server can be asked."""
        self._is_stopped = True
        wire, closed = self._wire, trio.Event()
        if wire is not None and self.owner not in self._network.dead:

            def execute() -> None:
                if wire.session is not None:
                    self.keeper.end(wire.session)
                wire.down(closed.set, "closed")

            wire.up(execute, "close")
            await closed.wait()
        self.die()

    def die(self) -> None:
        """The process is gone: its tasks wait for nothing any more, not even shielded ones."""
        self._is_stopped = True
        asked, self._asked = self._asked, {}
        for request in asked:
            request.set_exception(NotSent())
        if self._wire is not None:
            self._wire.is_open = False
            self._wire = None

    # ---- connections ----

    def _later(self, wait_s: float, call: Deliver) -> None:
        """By the process's own clock: not while it stands still."""
        network = self._network
        network.timeline.at(trio.current_time() + wait_s, lambda: network._arrive(self.owner, call))

    def _connect(self) -> None:
        if self._is_stopped:
            return
        began_s, asked = trio.current_time(), self._known
        wire = Wire(self.keeper, self.owner, self)
        settled = False

        def accept() -> None:
            if asked is not None and asked == self.ended:
                if (session := self.keeper.sessions.get(asked)) is not None:
                    self.keeper.end(session)
                found = None
            else:
                found = wire.session = self.keeper.attach(wire, asked, self.timeout_s)
            wire.down(lambda: made(found), "session")

        def made(session: KeeperSession | None) -> None:
            nonlocal settled
            if settled:
                return
            settled = True
            if self._is_stopped:
                return
            if session is None:
                self._wire = wire
                self._expired()
                return
            self._wire = wire
            self._known = self.session_id = session.number
            self.contact_at = began_s
            self.connection += 1
            self._network.log.add(f"{self.owner} has session {session.number}")
            self._later(self.timeout_s / 3, lambda: self._beat(wire))
            self._follower.on_up(self.connection, session.number)
            for observer in self.keeper.observers:
                observer()

        def give_up() -> None:
            nonlocal settled
            if not settled:
                settled = True
                wire.is_open = False
                self._connect()

        wire.up(accept, "connect")
        self._later(self.timeout_s / 3, give_up)

    def _beat(self, wire: Wire) -> None:
        if self._wire is not wire:
            return
        sent_s = trio.current_time()
        if sent_s - wire.received_s > self.timeout_s * 2 / 3:
            self._drop()
            return

        def execute() -> None:
            session = wire.session
            if session is not None and not session.is_over and session.wire is wire:
                session.heard_s = trio.current_time()
                wire.down(heard, "pong")

        def heard() -> None:
            self.contact_at = max(self.contact_at, sent_s)

        wire.up(execute, "ping")
        self._later(self.timeout_s / 3, lambda: self._beat(wire))

    def changed(self, kind: int, path: str) -> None:
        """A watch's event."""
        if self._to_miss:
            self._to_miss -= 1
            if not self._to_miss:
                self._follower.on_overflow()
            else:
                self._later(MISSED_TOLD_S, self._follower.on_overflow)
        else:
            self._follower.on_change(kind, path)

    def miss(self, count: int) -> None:
        """So many changes are dropped, and only then it is told that some were."""
        self._to_miss = count
        self._follower.on_overflow()

    def lose_answers(self, count: int, behind: int = 0) -> None:
        """So many changes are made, and the connection is reset instead of an answer; `behind` of
        them are answered before.
        """
        self._to_lose, self._to_answer = count, behind

    def lose_request(self, kind: type[object] | None, under: str, behind: int = 0) -> None:
        """The next request of this kind under this path, behind so many of them, isn't executed,
        and the connection is reset before its answer is due. The session lives.
        """
        self._unsent, self._to_send = (kind, under), behind

    def _is_lost(self, content: object) -> bool:
        kind, under = self._unsent
        if kind is None or not isinstance(content, kind):
            return False
        if not getattr(content, "path", "").startswith(under):
            return False
        if self._to_send:
            self._to_send -= 1
            return False
        self._unsent = (None, "")
        return True

    def _loses(self, content: object) -> bool:
        """Whether the answer to this is lost."""
        if not self._to_lose or not isinstance(content, Create2 | SetData | Delete):
            return False
        if self._to_answer:
            self._to_answer -= 1
            return False
        self._to_lose -= 1
        return True

    def drop(self) -> None:
        """The connection is lost."""
        self._drop()

    def _drop(self) -> None:
        wire = self._wire
        if wire is None:
            return
        wire.is_open = False
        self._wire = None
        self._later(RETRY_S * self._rng.random(), self._connect)
        self._follower.on_down(self.connection)

    def _expired(self) -> None:
        """The server has said so."""
        gone, self._known = self._known, None
        if gone is not None and gone == self.ended:
            self.ended = None
        wire = self._wire
        if wire is not None:
            wire.is_open = False
            self._wire = None
        self._later(RETRY_S * self._rng.random(), self._connect)
        self._follower.on_gone(self.connection, gone)


class SimSession(ZooKeeperSession):
    """With virtual time, and an end without threads."""

    def __init__(
        self,
        connect_string: str,
        session_timeout_s: float,
        *,
        connected: Callable[[], None],
        changed: Callable[[int, str], None],
        overflowed: Callable[[], None],
        witness: None,
    ) -> None:
        assert witness is None, "what ends a killed broker's session is the world's"
        super().__init__(
            connect_string,
            session_timeout_s,
            connected=connected,
            changed=changed,
            overflowed=overflowed,
        )
        self._clock_offset = 0.0

    async def aclose(self) -> None:
        """See `ZooKeeperSession.aclose`."""
        link = self._link
        assert isinstance(link, SimLink)
        self.tracker.close()
        with trio.move_on_after(CLOSE_S, shield=True):
            await link.close()
        link.die()
        self._abort(self._connection)


@contextmanager
def simulated(keeper: Keeper) -> Iterator[None]:
    """Stores that are opened meanwhile are those of the twin; `zk:NAME` names their process."""
    with (
        mock.patch.object(zookeeper_session, "Link", SimLink),
        mock.patch.object(zookeeper, "ZooKeeperSession", SimSession),
        mock.patch.object(SimLink, "keeper", keeper, create=True),
    ):
        yield

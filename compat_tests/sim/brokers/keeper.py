"""A twin of ZooKeeper: one tree, sessions that end when nothing is heard of them, connections that
keep the order of what they carry, and persistent watches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio
from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Transaction,
)

from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    NoNode,
    NotEmpty,
    Notification,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.paths import parent_path
from geminga_runtime.metadata.tree import PERSISTENT, Put, Row, apply_delete, apply_put
from geminga_runtime.metadata.zookeeper_link import AddWatch, RemoveWatches

from ..ledgers.network import Network

if TYPE_CHECKING:
    from .claims import Claims
    from .link import SimLink, Wire

KEEPER = "keeper"
_KINDS = {Change.CREATED: 1, Change.DELETED: 2, Change.MODIFIED: 3}
_EPHEMERAL, _SEQUENTIAL = 1, 2


@dataclass(eq=False, slots=True)
class KeeperSession:
    """A session as the server knows it."""

    number: int
    owner: str
    timeout_s: float
    heard_s: float
    wire: Wire | None = None
    prefixes: dict[str, None] = field(default_factory=dict)
    is_over: bool = False


class Keeper:
    """The ensemble."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.store = MemoryMetadataStore()
        """A session that nothing happens to, for what prepares and checks."""
        self.rows = self.store._rows
        self.rows.hubs.append(self)
        self.sessions: dict[int, KeeperSession] = {}
        self.links: dict[str, SimLink] = {}
        """The newest one of each client."""
        self.observers: list[Callable[[], None]] = []
        """Called after each change."""
        self.taken: dict[str, float] = {}
        """When an ephemeral node was last deleted by another session than its own."""
        self.claims: Claims | None = None
        """Told of what is read and changed."""

    # ---- sessions ----

    def attach(self, wire: Wire, number: int | None, timeout_s: float) -> KeeperSession | None:
        """A connection of that session, of a new one if it has none; None if it has ended."""
        now = trio.current_time()
        if number is None:
            self.rows.sessions += 1
            number = PERSISTENT + self.rows.sessions
            found = KeeperSession(number, wire.owner, timeout_s, now)
            self.sessions[number] = found
            self._watch_over(found)
        else:
            known = self.sessions.get(number)
            if known is None or known.is_over:
                return None
            found = known
        found.wire = wire
        found.heard_s = now
        found.prefixes = {}
        return found

    def _watch_over(self, session: KeeperSession) -> None:
        def look() -> None:
            if session.is_over:
                return
            if trio.current_time() >= session.heard_s + session.timeout_s:
                self.end(session)
            else:
                self._watch_over(session)

        self.network.timeline.at(session.heard_s + session.timeout_s, look)

    def end(self, session: KeeperSession) -> None:
        """Its ephemeral nodes go with it."""
        if session.is_over:
            return
        session.is_over = True
        session.wire = None
        del self.sessions[session.number]
        self.network.log.add(f"session {session.number} of {session.owner} ends")
        for path in self.rows.owned_by(session.number):
            self.rows.publish(apply_delete(self.rows, path, None))

    def owner(self, path: str) -> KeeperSession | None:
        """The session that a node belongs to."""
        row = self.rows.read(path)
        return None if row is None else self.sessions.get(row.owner)

    # ---- changes ----

    def publish(self, notifications: Sequence[Notification]) -> None:
        """Of the tree: to all whose watches cover them."""
        for session in self.sessions.values():
            if session.wire is None or not session.prefixes:
                continue
            for each in notifications:
                kind = _KINDS.get(each.kind)
                if kind is not None and _covers(session.prefixes, each.path):
                    session.wire.tell(kind, each.path)
        for observer in self.observers:
            observer()

    # ---- requests ----

    def execute(self, wire: Wire, content: object) -> object:
        """Raises kazoo's errors."""
        session = wire.session
        if session is None or session.is_over:
            raise SessionExpiredError
        if session.wire is not wire:
            raise SessionMovedError
        session.heard_s = trio.current_time()
        return self._execute(session, content)

    def _execute(self, session: KeeperSession, content: object) -> object:
        if isinstance(content, GetData):
            row = self._row(content.path)
            if self.claims is not None:
                self.claims.read(session, content.path, self.name_of(row.owner))
            return row.value, self._stat(row)
        if isinstance(content, Exists):
            found = self.rows.read(content.path)
            return None if found is None else self._stat(found)
        if isinstance(content, GetChildren):
            self._row(content.path)
            return self.rows.children(content.path)
        if isinstance(content, AddWatch):
            session.prefixes[content.path] = None
            return None
        if isinstance(content, RemoveWatches):
            session.prefixes.pop(content.path, None)
            return None
        if isinstance(content, Transaction):
            return self._change_all(session, content.operations)
        return self._changed(session, content)

    def _change_all(self, session: KeeperSession, operations: Sequence[object]) -> list[object]:
        """All or none, of different nodes: an outcome for each."""
        refusals = [self._refusal(each) for each in operations]
        at = next((at for at, refused in enumerate(refusals) if refused is not None), None)
        if at is not None:
            behind = len(operations) - at - 1
            return [
                *(RolledBackError() for _ in range(at)),
                refusals[at],
                *(RuntimeInconsistency() for _ in range(behind)),
            ]
        return [self._changed(session, each) for each in operations]

    def _refusal(self, operation: object) -> Exception | None:
        assert isinstance(operation, Create | SetData)
        row = self.rows.read(operation.path)
        if isinstance(operation, Create):
            if self.rows.read(parent_path(operation.path)) is None:
                return NoNodeError()
            return None if row is None else NodeExistsError()
        if row is None:
            return NoNodeError()
        return None if operation.version in (-1, row.version) else BadVersionError()

    def _changed(self, session: KeeperSession, content: object) -> object:
        try:
            return self._change(session, content)
        except BadVersion:
            exists = isinstance(content, Create | Create2)
            raise (NodeExistsError if exists else BadVersionError) from None
        except NoNode:
            raise NoNodeError from None
        except NotEmpty:
            raise NotEmptyError from None

    def _change(self, session: KeeperSession, content: object) -> object:
        log, now_ms = self.network.log, int(trio.current_time() * 1000)
        if isinstance(content, Create | Create2):
            owner = session.number if content.flags & _EPHEMERAL else PERSISTENT
            sequential = bool(content.flags & _SEQUENTIAL)
            version = None if sequential else MUST_NOT_EXIST
            put = Put(content.path, bytes(content.data), version, owner, sequential)
            made, row, heard = apply_put(self.rows, put, now_ms)
            log.add(f"{session.owner} made {made}")
            if self.claims is not None:
                self.claims.made(session, made)
                self.claims.wrote(session, made, row.value, is_new=True)
            self.rows.publish(heard)
            return made, self._stat(row)
        if isinstance(content, SetData):
            owner = self._row(content.path).owner
            version = None if content.version < 0 else content.version
            put = Put(content.path, bytes(content.data), version, PERSISTENT, False)
            _, row, heard = apply_put(self.rows, put, now_ms)
            log.add(f"{session.owner} set {content.path} {row.version}")
            if self.claims is not None:
                self.claims.changes(session, content.path, self._other(owner, session), "wrote")
                self.claims.wrote(session, content.path, row.value, is_new=False)
            self.rows.publish(heard)
            return self._stat(row)
        if isinstance(content, Delete):
            owner = self._row(content.path).owner
            version = None if content.version < 0 else content.version
            heard = apply_delete(self.rows, content.path, version)
            log.add(f"{session.owner} deleted {content.path}")
            if self.claims is not None:
                self.claims.changes(session, content.path, self._other(owner, session), "removed")
            if owner not in (PERSISTENT, session.number):
                log.add(f"which was {self.name_of(owner)}'s")
                self.taken[content.path] = trio.current_time()
            self.rows.publish(heard)
            return None
        raise ZookeeperError(f"not simulated: {content}")

    def remove(self, path: str) -> None:
        """As somebody does by hand."""
        heard = apply_delete(self.rows, path, None)
        self.network.log.add(f"somebody deleted {path}")
        self.taken[path] = trio.current_time()
        self.rows.publish(heard)

    def _other(self, owner: int, session: KeeperSession) -> str:
        """The process of an ephemeral node's session; empty if it is this one's, or nobody's."""
        return "" if owner in (PERSISTENT, session.number) else self.name_of(owner)

    def name_of(self, number: int) -> str:
        """The process of a session."""
        session = self.sessions.get(number)
        return "nobody" if session is None else session.owner

    def _row(self, path: str) -> Row:
        row = self.rows.read(path)
        if row is None:
            raise NoNodeError
        return row

    @staticmethod
    def _stat(row: Row) -> tuple[int, ...]:
        owner = row.owner
        return (0, 0, row.ctime_ms, row.mtime_ms, row.version, 0, 0, owner, len(row.value), 0, 0)


def _covers(prefixes: dict[str, None], path: str) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in prefixes)

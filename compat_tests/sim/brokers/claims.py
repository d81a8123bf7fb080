"""What stands in the metadata belongs to whoever claimed it last: owners' nodes, logs, cursors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga_broker.log.catalog import OWNER_PROPERTY, ROOT
from geminga_broker.log.cursor_node import OWNER
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import LEADER_PATH, OWNERS_PATH
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.managed_ledger import decode_cursor_info, decode_ledger_info
from geminga_protocol.topic_name import url_decode

if TYPE_CHECKING:
    from .keeper import KeeperSession
    from .world import World

_LOG_PARTS = 6
"""Of the path of a log's node; a cursor's has one more."""


def host_of(process: str) -> str:
    """The machine of one of its processes."""
    return process.partition(".")[0]


class Claims:
    """Asked by the keeper about each request that reads or changes a node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: dict[tuple[str, str], str] = {}
        """By process and path: the machine whose node it was when the process last read it."""
        self._writer: dict[str, str] = {}
        """Who wrote a log's or a cursor's node last."""
        self._earlier: dict[str, set[str]] = {}
        """Who wrote it before."""
        self.chosen: set[tuple[BundleId, str]] = set()
        """Bundles, and ids of brokers that somebody chose for them."""

    def read(self, session: KeeperSession, path: str, owner: str) -> None:
        """`owner` is the process that the node belongs to."""
        if _is_owners(path):
            self._read[session.owner, path] = host_of(owner)

    def changes(self, session: KeeperSession, path: str, owner: str, what: str) -> None:
        """A node is about to be written over or removed: another live broker's only if it was the
        process's own, of an earlier life or session, when that looked.
        """
        here = host_of(session.owner)
        if owner in ("", "nobody") or host_of(owner) == here or not _is_owners(path):
            return
        if self._read.get((session.owner, path)) != here:
            self._violate(f"{session.owner} {what} {path}, which is {owner}'s")

    def made(self, session: KeeperSession, path: str) -> None:
        """A node."""
        self._earlier.pop(path, None)
        self._writer.pop(path, None)
        if _is_owners(path):
            self._read[session.owner, path] = host_of(session.owner)
        if path.startswith(f"{OWNERS_PATH}/public/"):
            self._check_placed(session, BundleId.parse(path.removeprefix(f"{OWNERS_PATH}/")))

    def wrote(self, session: KeeperSession, path: str, value: bytes, *, is_new: bool) -> None:
        """Of a log's or cursor's node: who has written it once more after another one never again
        does.
        """
        parts = path.count("/")
        if not path.startswith(f"{ROOT}/public/") or parts not in (_LOG_PARTS - 1, _LOG_PARTS):
            return
        is_cursor = parts == _LOG_PARTS
        writer = _cursor_writer(value) if is_cursor else _log_writer(value)
        if writer is None:
            return
        before, earlier = self._writer.get(path), self._earlier.setdefault(path, set())
        if writer in earlier:
            self._violate(f"{session.owner} wrote {path}, which another broker has claimed")
        if before not in (None, writer):
            earlier.add(str(before))
        self._writer[path] = writer
        if is_cursor and not is_new:
            self._check_claimed(session, path, writer)

    def _check_claimed(self, session: KeeperSession, path: str, writer: str) -> None:
        """Once a broker has loaded a topic no earlier owner writes its cursors."""
        log_path, _, cursor = path.rpartition("/")
        claimed = self._writer.get(log_path)
        if claimed in (None, writer):
            return
        for life in self._world.lives():
            for topic in life.service.topics.loaded.values():
                if not isinstance(topic, PersistentTopic):
                    continue
                catalog = topic.log.context.catalog
                known = url_decode(cursor) in topic.subscriptions
                if catalog.path == log_path and catalog.owner == claimed and known:
                    self._violate(f"{session.owner} wrote {path}, which {life.name} serves")

    def _check_placed(self, session: KeeperSession, bundle: BundleId) -> None:
        """A bundle is where somebody has chosen it to be, or where a part or the whole was."""
        here = host_of(session.owner)
        low, end = bundle.bounds
        for known, broker_id in self.chosen:
            if host_of(broker_id.partition(":")[0]) == here and known.namespace == bundle.namespace:
                known_low, known_end = known.bounds
                if known_low < end and low < known_end:
                    return
        self._violate(f"{session.owner} took {bundle} though nobody chose it for it")

    def _violate(self, text: str) -> None:
        self._world.books.violate(text)


def _is_owners(path: str) -> bool:
    return path == LEADER_PATH or path.startswith(f"{OWNERS_PATH}/")


def _log_writer(value: bytes) -> str | None:
    properties = decode_ledger_info(value).properties
    return next((each.value for each in properties if each.key == OWNER_PROPERTY), None)


def _cursor_writer(value: bytes) -> str | None:
    properties = decode_cursor_info(value).cursorProperties
    return next((each.value for each in properties if each.name == OWNER), None)

"""Put and delete, shared by all embedded stores: pure decisions over a table of rows.

The rules are ZooKeeper's, as in Apache's MetadataStore: version 0 at creation and one more with
each put, parents created on demand, ten-digit sequence numbers that a parent never reuses, no
children under ephemeral nodes.
"""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataError,
    NoNode,
    NotEmpty,
    Notification,
    Stat,
    Write,
    Writes,
)
from geminga_runtime.metadata.paths import check_path, parent_path

PERSISTENT = 0
"""The owner of a node that belongs to no session."""


class Row(NamedTuple):
    """One node as a store keeps it; `sequence` is the next number for a sequential child."""

    value: bytes
    version: int
    ctime_ms: int
    mtime_ms: int
    owner: int = PERSISTENT
    sequence: int = 0

    def stat(self, session: int) -> Stat:
        """The node's stat, as `session` sees it."""
        owned = self.owner == session != PERSISTENT
        return Stat(self.version, self.ctime_ms, self.mtime_ms, self.owner != PERSISTENT, owned)


class Rows(Protocol):
    """The table of nodes. The root always exists."""

    def read(self, path: str) -> Row | None:
        """The row of a node."""

    def insert(self, path: str, row: Row) -> None:
        """Add a new node."""

    def update(self, path: str, row: Row) -> None:
        """Replace an existing node."""

    def remove(self, path: str) -> None:
        """Delete an existing node without children."""

    def has_children(self, path: str) -> bool:
        """Whether the node has children."""


class Put(NamedTuple):
    """A requested put; `owner` is the session of an ephemeral node."""

    path: str
    value: bytes
    expected_version: int | None
    owner: int
    sequential: bool


def check_put(request: Put) -> None:
    """Raises ValueError for a request that is always invalid."""
    if request.path == "/":
        raise ValueError("the root can't be written")
    if not request.sequential or not request.path.endswith("/"):
        check_path(request.path)
    if request.sequential and request.expected_version not in (None, MUST_NOT_EXIST):
        raise ValueError("a sequential node is always new: no expected version")


def apply_put(rows: Rows, request: Put, now_ms: int) -> tuple[str, Row, list[Notification]]:
    """Apply it; returns the path, the new row and the notifications. Raises BadVersion."""
    if request.sequential:
        return _put_sequential(rows, request, now_ms)
    row = rows.read(request.path)
    _check_version(request.path, row, request.expected_version)
    return _put_at(rows, request, row, now_ms)


def _put_at(
    rows: Rows, request: Put, row: Row | None, now_ms: int, *, has_parent: bool = False
) -> tuple[str, Row, list[Notification]]:
    """`has_parent`: that was looked at already."""
    path = request.path
    if row is not None:
        row = row._replace(value=request.value, version=row.version + 1, mtime_ms=now_ms)
        rows.update(path, row)
        return path, row, [Notification(Change.MODIFIED, path)]
    row = Row(request.value, 0, now_ms, now_ms, request.owner)
    heard = [] if has_parent else _make_parents(rows, path, now_ms)
    rows.insert(path, row)
    heard += _created(path)
    return path, row, heard


def _put_sequential(rows: Rows, request: Put, now_ms: int) -> tuple[str, Row, list[Notification]]:
    heard = _make_parents(rows, request.path, now_ms)
    parent = parent_path(request.path)
    parent_row = rows.read(parent)
    assert parent_row is not None
    sequence = parent_row.sequence
    while True:
        path = f"{request.path}{sequence:010d}"
        sequence += 1
        if rows.read(path) is None:  # a node may have this name already
            break
    rows.update(parent, parent_row._replace(sequence=sequence))
    row = Row(request.value, 0, now_ms, now_ms, request.owner)
    rows.insert(path, row)
    return path, row, heard + _created(path)


def apply_numbered(
    rows: Rows, at: str, writes: Writes, now_ms: int
) -> tuple[int, list[int], list[Notification]]:
    """Take a number and do the writes for it; returns the number, the new versions and the
    notifications. Raises BadVersion, MetadataError: then the number is taken, and nothing else
    written.
    """
    parent = parent_path(at)
    row = rows.read(parent)
    number = 0 if row is None else row.sequence
    while rows.read(f"{at}{number:010d}") is not None:
        number += 1
    heard = _skip_at(rows, parent, row, number + 1, now_ms)
    found = checked_writes(rows, writes(number))
    versions, more = apply_writes(rows, found, now_ms)
    return number, versions, heard + more


class Checked(NamedTuple):
    """A write that may be done, and what is there before."""

    write: Write
    row: Row | None
    has_parent: bool
    """Of a new node: whether nothing is missing above it."""


def checked_writes(rows: Rows, writes: Sequence[Write]) -> list[Checked]:
    """The writes and what is there now. Raises BadVersion, MetadataError."""
    found: list[Checked] = []
    for write in writes:
        row = rows.read(write.path)
        _check_version(write.path, row, write.version)
        has_parent = row is not None or not _missing_parents(rows, write.path)
        found.append(Checked(write, row, has_parent))
    return found


def apply_writes(
    rows: Rows, writes: Sequence[Checked], now_ms: int
) -> tuple[list[int], list[Notification]]:
    """Do what was checked, of different nodes; returns versions and notifications."""
    versions: list[int] = []
    heard: list[Notification] = []
    for write, row, has_parent in writes:
        request = Put(write.path, write.value, None, PERSISTENT, sequential=False)
        _, made, more = _put_at(rows, request, row, now_ms, has_parent=has_parent)
        versions.append(made.version)
        heard += more
    return versions, heard


def apply_skip(rows: Rows, parent: str, number: int, now_ms: int) -> list[Notification]:
    """Let the next sequential child of `parent` have that number at least; returns the
    notifications.
    """
    return _skip_at(rows, parent, rows.read(parent), number, now_ms)


def _skip_at(
    rows: Rows, parent: str, row: Row | None, number: int, now_ms: int
) -> list[Notification]:
    heard: list[Notification] = []
    if row is None:
        heard = _make_parents(rows, parent, now_ms)
        row = Row(b"", 0, now_ms, now_ms)
        rows.insert(parent, row)
        heard += _created(parent)
    rows.update(parent, row._replace(sequence=max(row.sequence, number)))
    return heard


def _check_version(path: str, row: Row | None, expected: int | None) -> None:
    if expected is None:
        return
    found = MUST_NOT_EXIST if row is None else row.version
    if found != expected:
        raise BadVersion(f"{path}: expected version {expected}, found {found}", path)


def _missing_parents(rows: Rows, path: str) -> list[str]:
    """The parents that are missing, the nearest first. Raises MetadataError if the first one that
    is there can't have children.
    """
    missing: list[str] = []
    parent = parent_path(path)
    while (row := rows.read(parent)) is None:
        missing.append(parent)
        parent = parent_path(parent)
    if row.owner != PERSISTENT:
        raise MetadataError(f"{parent} is ephemeral: it can't have children")
    return missing


def _make_parents(rows: Rows, path: str, now_ms: int) -> list[Notification]:
    missing = _missing_parents(rows, path)
    heard: list[Notification] = []
    for made in reversed(missing):
        rows.insert(made, Row(b"", 0, now_ms, now_ms))
        heard += _created(made)
    return heard


def _created(path: str) -> list[Notification]:
    return [
        Notification(Change.CREATED, path),
        Notification(Change.CHILDREN, parent_path(path)),
    ]


def apply_delete(rows: Rows, path: str, expected_version: int | None) -> list[Notification]:
    """Apply it; returns the notifications. Raises NoNode, NotEmpty, BadVersion."""
    row = rows.read(path)
    if row is None:
        raise NoNode(path)
    _check_version(path, row, expected_version)
    if path == "/" or rows.has_children(path):
        raise NotEmpty(path)
    rows.remove(path)
    return [
        Notification(Change.DELETED, path),
        Notification(Change.CHILDREN, parent_path(path)),
    ]

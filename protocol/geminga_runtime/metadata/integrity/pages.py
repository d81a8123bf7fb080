"""What can be read of a damaged file of the SQLite store, without SQLite, page by page.

Formats: SQLite's "Database File Format". The table is a b-tree without rowids: its inner pages hold
rows too. All pages are gone through that aren't known to be damaged, or free: so a damaged inner
page costs its own rows only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from geminga_runtime.metadata.integrity.check import Checked
from geminga_runtime.metadata.integrity.log_format import FRAME
from geminga_runtime.metadata.paths import check_path
from geminga_runtime.metadata.tree import PERSISTENT, Row

_INNER, _LEAF = 0x02, 0x0A
_ROOT_PAGE = 2
"""Of the table, which was the first thing made in the file."""
_COLUMNS = 8
_INT_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_BLOB_FROM, _TEXT_FROM = 12, 13
_FREE_LIST_AT = 32
_VARINT_BYTES_MAX = 9

Names = tuple[str, str]
"""Parent and name, as in the table."""
_Value = int | str | bytes | None


class Found(NamedTuple):
    """The rows of a file."""

    rows: dict[Names, Row]
    lost: set[Names]
    """Those of which only the names are there."""


class _Bad(Exception):
    """It isn't what it should be."""


class _Pages:
    """The pages as SQLite would see them."""

    def __init__(self, path: Path, checked: Checked) -> None:
        self._bytes = checked.page_bytes
        self._bad = checked.bad_pages
        log = checked.log
        self._in_log = {} if log.header is None or log.file_is_newer else dict(log.pages)
        self._header = log.header
        there = len(checked.sums)
        self.count = max(there, log.file_pages, *self._in_log, 0) if self._in_log else there
        self._file = self._open(path)
        self._log = self._open(Path(f"{path}-wal")) if self._in_log else -1

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.is_file() else -1

    def read(self, number: int) -> bytes:
        """Raises _Bad."""
        data = b""
        with suppress(OSError):
            frame = self._in_log.get(number)
            if frame is not None and self._header is not None:
                place = self._header.offset(frame) + FRAME.size
                data = os.pread(self._log, self._bytes, place)
            elif self._file >= 0 and number > 0 and number not in self._bad:
                data = os.pread(self._file, self._bytes, (number - 1) * self._bytes)
        if len(data) != self._bytes:
            raise _Bad
        return data

    def close(self) -> None:
        for descriptor in (self._file, self._log):
            if descriptor >= 0:
                os.close(descriptor)


def read_rows(path: Path, checked: Checked) -> Found:
    """All rows of nodes that belong to no session. Raises OSError if the file can't be opened."""
    found = Found({}, set())
    pages = _Pages(path, checked)
    try:
        for number in _of_use(pages):
            try:
                _rows_of_page(pages, pages.read(number), found)
            except _Bad:
                continue
        lost = found.lost - found.rows.keys()
        return found._replace(lost=lost)
    finally:
        pages.close()


def _of_use(pages: _Pages) -> Iterator[int]:
    """The pages that may have rows of now."""
    every = range(1, pages.count + 1)
    try:
        free = _free_pages(pages)
    except _Bad:
        try:
            return iter(_tree(pages, _ROOT_PAGE))
        except _Bad:
            return iter(every)  # a row that was deleted may be among them
    return (number for number in every if number not in free)


def _free_pages(pages: _Pages) -> set[int]:
    free: set[int] = set()
    trunk = _u32(pages.read(1), _FREE_LIST_AT)
    while trunk:
        if trunk in free or trunk > pages.count:
            raise _Bad
        page = pages.read(trunk)
        count = _u32(page, 4)
        if 8 + 4 * count > len(page):
            raise _Bad
        free.add(trunk)
        free.update(_u32(page, 8 + 4 * place) for place in range(count))
        trunk = _u32(page, 0)
    return free


def _tree(pages: _Pages, root: int) -> set[int]:
    seen: set[int] = set()
    open_ends = [root]
    while open_ends:
        number = open_ends.pop()
        if number in seen:
            raise _Bad
        seen.add(number)
        page = pages.read(number)
        if page[0] == _INNER:
            open_ends += [_u32(page, at) for at in _cells(page)]
            open_ends.append(_u32(page, 8))
        elif page[0] != _LEAF:
            raise _Bad
    return seen


def _cells(page: bytes) -> Iterator[int]:
    """Where the cells of a page of the table begin."""
    head = 12 if page[0] == _INNER else 8
    count = _u16(page, 3)
    if head + 2 * count > len(page):
        raise _Bad
    for place in range(count):
        at = _u16(page, head + 2 * place)
        if not head <= at < len(page) - 4:
            raise _Bad
        yield at


def _rows_of_page(pages: _Pages, page: bytes, found: Found) -> None:
    if page[0] not in (_INNER, _LEAF):
        return
    for at in _cells(page):
        try:
            local, rest, missing = _payload(page, at + (4 if page[0] == _INNER else 0))
        except _Bad:
            continue
        names: Names | None = None
        try:
            with suppress(_Bad):
                names = _names(_record(local, 2))
            columns = _record(local + _overflow(pages, rest, missing), _COLUMNS + 1)
            names, row = _names(columns), _row(columns)
        except _Bad:
            if names is not None:
                found.lost.add(names)
            continue
        before = found.rows.get(names)
        if row.owner == PERSISTENT and (before is None or _age(before) < _age(row)):
            found.rows[names] = row


def _age(row: Row) -> tuple[int, int]:
    return row.mtime_ms, row.version


def _payload(page: bytes, at: int) -> tuple[bytes, int, int]:
    """What of a cell's record is in the page, the first page of the rest, and how much that is."""
    size, at = _varint(page, at)
    usable = len(page)
    most = (usable - 12) * 64 // 255 - 23
    if size <= most:
        here = size
    else:
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        here = here if here <= most else least
    if at + here + (4 if here < size else 0) > usable:
        raise _Bad
    rest = _u32(page, at + here) if here < size else 0
    return page[at : at + here], rest, size - here


def _overflow(pages: _Pages, number: int, missing: int) -> bytes:
    parts = []
    seen: set[int] = set()
    while missing > 0:
        if number in seen:
            raise _Bad
        seen.add(number)
        page = pages.read(number)
        parts.append(page[4 : 4 + missing])
        missing -= len(parts[-1])
        number = _u32(page, 0)
    return b"".join(parts)


def _record(data: bytes, columns_max: int) -> list[_Value]:
    """The first columns of a record."""
    size, at = _varint(data, 0)
    if size > len(data):
        raise _Bad
    place, columns = size, list[_Value]()
    while at < size and len(columns) < columns_max:
        kind, at = _varint(data, at)
        value, place = _column(data, place, kind)
        columns.append(value)
    return columns


def _column(data: bytes, at: int, kind: int) -> tuple[_Value, int]:
    if kind in (8, 9):
        return kind - 8, at
    if kind in _INT_BYTES:
        end = at + _INT_BYTES[kind]
        value: _Value = int.from_bytes(data[at:end], "big", signed=True)
    elif kind >= _BLOB_FROM:
        end = at + (kind - _BLOB_FROM) // 2
        value = data[at:end]
        if kind & 1:
            try:
                value = data[at:end].decode()
            except UnicodeDecodeError:
                raise _Bad from None
    else:
        raise _Bad
    if end > len(data):
        raise _Bad
    return value, end


def _names(columns: list[_Value]) -> Names:
    if len(columns) < 2:
        raise _Bad
    parent, name = columns[:2]
    if not isinstance(parent, str) or not isinstance(name, str):
        raise _Bad
    if (parent, name) != ("", ""):
        try:
            check_path(path_of((parent, name)))
        except ValueError:
            raise _Bad from None
        if not parent.startswith("/") or "/" in name or not name:
            raise _Bad
    return parent, name


def path_of(names: Names) -> str:
    """The node's."""
    return f"{names[0].rstrip('/')}/{names[1]}"


def _row(columns: list[_Value]) -> Row:
    if len(columns) != _COLUMNS:
        raise _Bad
    value, *numbers = columns[2:]
    if not isinstance(value, bytes):
        raise _Bad
    whole = [number for number in numbers if isinstance(number, int) and number >= 0]
    if len(whole) != len(numbers):
        raise _Bad
    return Row(value, *whole)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        if place == at + _VARINT_BYTES_MAX - 1:
            return value << 8 | byte, place + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    raise _Bad


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")

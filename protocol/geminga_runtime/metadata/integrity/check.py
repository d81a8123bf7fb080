"""Whether the SQLite store's file and its log are as they were written: before SQLite opens them.

Nothing is written here.
"""

from __future__ import annotations

import errno
import glob
import stat
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from geminga_runtime.metadata.api import MetadataError
from geminga_runtime.metadata.integrity.page_sums import (
    UNKNOWN,
    WORD,
    can_judge,
    changed_pages,
    read_sums,
    sums_of_file,
)
from geminga_runtime.metadata.sqlite_log import LogState, examine

PAGE_BYTES = 4096
"""SQLite's own choice."""
PAGES_NAMED = 5
NOT_LOST = "nothing is lost: give the file back to the user who runs Geminga, to read and write"
_HEADER_BYTES = 20
_PAGE_SIZE = slice(16, 18)
_USES_LOG = slice(18, 20)
_SAVED = ".saved-"
LOST_PAGES = "topics, policies and acknowledgements that stood there are lost"


class StoreOpenError(MetadataError):
    """The store's file can't be used; the message is one sentence for the operator."""


class StoreDamaged(StoreOpenError):
    """The file or its log was changed by something else: changes that were answered are lost. The
    message says what is wrong and lost, and has room for advice behind it.
    """


class Checked(NamedTuple):
    """What was found."""

    damage: str
    """What is wrong, and what is lost; empty if nothing is known."""
    log: LogState
    page_bytes: int
    sums: array[int]
    """Of the pages of the file, as it is when SQLite has opened it."""
    bad_pages: frozenset[int]
    """Those that are known to be damaged."""
    is_proven: bool
    """Whether each byte is known to be as it was written."""


def saved_file(path: Path, number: int) -> Path:
    """What could be saved of the file that gets this number: the next one at `path`."""
    return path.with_name(f"{path.name}{_SAVED}{number}")


def aside_begun(path: Path) -> list[Path]:
    """Such files: there is one while the file at `path` is being set aside. Raises OSError."""
    start = f"{path.name}{_SAVED}"
    found = path.parent.glob(f"{glob.escape(start)}*")
    return sorted(each for each in found if each.name.removeprefix(start).isdecimal())


def check_file(path: Path) -> Checked:
    """The file and its log. Raises StoreOpenError if they can't be looked at, or StoreDamaged if
    there is no file to look at.
    """
    with refusals(path):
        return _check(path)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """StoreOpenError in the place of OSError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.EACCES, errno.EPERM):
            text = f"{where} can't be read: {error.strerror}; {NOT_LOST}"
            raise StoreOpenError(text) from error
        raise StoreOpenError(f"{where} can't be read: {error.strerror or error}") from error


def _check(path: Path) -> Checked:
    for begun in aside_begun(path):
        raise StoreDamaged(f"{path} was being set aside, which didn't come to its end: {begun}")
    size = _size(path)
    known = read_sums(path)
    log = examine(path, None if known is None else known.committed)
    page_bytes = PAGE_BYTES
    if known is not None:
        page_bytes = known.page_bytes
    elif log.header is not None:
        page_bytes = log.header.page_bytes
    elif size:
        page_bytes = _page_bytes(path) or PAGE_BYTES
    sums = sums_of_file(path, page_bytes) if size else array(WORD)
    damage, bad = _of_log(log), frozenset[int]()
    is_proven = known is not None and can_judge(path, known, log)
    if known is not None and is_proven:
        bad = frozenset(changed_pages(known, sums, log))
    unread = {number for number, found in enumerate(sums, 1) if found == UNKNOWN}
    bad |= unread - log.pages.keys()
    if not size and (log.pages or known is not None):
        what = "empty" if path.exists() else "gone"
        damage = f"{path} is {what}, though other files of it are there; {LOST_PAGES}"
    elif bad:
        damage = _of_pages(path, bad, len(sums))
    _forget_what_opening_changes(path, sums)
    return Checked(damage, log, page_bytes, sums, bad, is_proven and not damage)


def _forget_what_opening_changes(path: Path, sums: array[int]) -> None:
    """Without a log SQLite writes to the file itself, here while it begins to use one."""
    if Path(f"{path}-journal").exists():
        sums[:] = array(WORD, [UNKNOWN]) * len(sums)
    elif sums and _header(path)[_USES_LOG] != b"\2\2":
        sums[0] = UNKNOWN


def _size(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    if stat.S_ISDIR(found.st_mode):
        raise StoreDamaged(f"{path} is a directory, not a file; all topics and policies are lost")
    if not stat.S_ISREG(found.st_mode):
        raise StoreDamaged(f"{path} is not a file; all topics and policies are lost")
    return found.st_size


def _page_bytes(path: Path) -> int:
    """As the file's header says; 0 if it makes no sense."""
    size = int.from_bytes(_header(path)[_PAGE_SIZE], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and not size & (size - 1) else 0


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


def _of_log(log: LogState) -> str:
    if not log.damage:
        return ""
    if log.file_is_newer:
        return f"{log.damage}; all of them are known to be in the file itself"
    return f"{log.damage}; changes of the metadata that were answered are lost"


def _of_pages(path: Path, bad: frozenset[int], there: int) -> str:
    gone = sum(number > there for number in bad)
    if gone:
        what = f"{path} was cut: {gone} pages at its end are missing"
        if len(bad) > gone:
            what += f", {len(bad) - gone} were changed"
    else:
        named = ", ".join(map(str, sorted(bad)[:PAGES_NAMED]))
        more = ", ..." if len(bad) > PAGES_NAMED else ""
        what = (
            f"{path} was changed by something else: {len(bad)} of its {there} pages are damaged "
            f"({named}{more})"
        )
    return f"{what}; {LOST_PAGES}"

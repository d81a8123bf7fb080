"""Ownership of the directories: locks and cookies (spec BK-10).

A cookie binds every directory to one bookie id, one instance and one role, as BookKeeper's
`Cookie`. It has no paths, so that a stopped bookie's directories can be moved. The metadata store
has a copy, so that a bookie with emptied directories, or with an emptied metadata store, refuses to
start instead of losing ledgers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.errors import DataDirError
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.disk import (
    DirectoryLock,
    Disk,
    read_file,
    replace_file,
)
from geminga_runtime.ballast import Ballast
from geminga_runtime.directories import make_durable_directory
from geminga_runtime.metadata.api import MUST_NOT_EXIST, MetadataStore

COOKIE_NAME = "VERSION"
LOCK_NAME = "bookie.lock"
BALLAST_NAME = "ballast"
LAYOUT_VERSION = 1
COOKIES_PATH = "/ledgers/cookies"
_TITLE = "geminga-bookie"
UNSYNCED_NAME = "unsynced"
UNREAD_NAME = "unread"
"""In a journal directory while ledgers are to be put in doubt for what can't be read of logs."""
"""In a journal directory while what the bookie acknowledged may be lost at its next start: since it
isn't synced, or since a disk is lost. The text says why, without one the former."""
_HARMLESS_NAMES = frozenset(
    {
        LOCK_NAME,
        BALLAST_NAME,
        "lost+found",
        UNSYNCED_NAME,
        f"{UNSYNCED_NAME}.tmp",
        UNREAD_NAME,
        f"{UNREAD_NAME}.tmp",
    }
)


class Cookie(NamedTuple):
    """The contents of a directory's cookie."""

    bookie_id: str
    instance_id: str
    role: str
    cluster_id: str = ""
    """Empty: of a bookie that is in no cluster."""

    def encode(self) -> bytes:
        """The file's contents."""
        cluster = f"cluster {self.cluster_id}\n" if self.cluster_id else ""
        return (
            f"{_TITLE} {LAYOUT_VERSION}\nbookie {self.bookie_id}\n"
            f"instance {self.instance_id}\nrole {self.role}\n{cluster}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: Path) -> Cookie:
        """Raises DataDirError for another version or a damaged file."""
        lines = data.decode("utf-8", "replace").splitlines()
        fields = dict(line.split(" ", 1) for line in lines if " " in line)
        version = fields.get(_TITLE)
        if version is None or not fields.keys() >= {"bookie", "instance", "role"}:
            raise DataDirError(f"{path} is damaged or not a bookie's")
        if version != str(LAYOUT_VERSION):
            raise DataDirError(
                f"{path} is of layout version {version}, this bookie knows {LAYOUT_VERSION}: "
                "start the Geminga that wrote it (docs/UPGRADING.md)"
            )
        cluster_id = fields.get("cluster", "")
        return cls(fields["bookie"], fields["instance"], fields["role"], cluster_id)


def roles(options: BookieOptions) -> Iterator[tuple[str, Path]]:
    """Every directory with its role, without index directories that are default."""
    for kind, directories in (
        ("journal", options.journal_dirs),
        ("ledgers", options.ledger_dirs),
        ("index", options.index_dirs),
    ):
        for number, directory in enumerate(directories):
            yield f"{kind} {number + 1}/{len(directories)}", directory


def index_directory(options: BookieOptions, number: int) -> Path:
    """The index directory of a ledger directory."""
    parent = options.index_dirs[number] if options.index_dirs else options.ledger_dirs[number]
    return parent / "index"


class DataDirs:
    """Directories locked for this process, cookies checked. Raises DataDirError."""

    def __init__(self, disk: Disk, options: BookieOptions) -> None:
        if not options.journal_dirs or not options.ledger_dirs:
            raise DataDirError("a bookie needs at least one journal and one ledger directory")
        if options.index_dirs and len(options.index_dirs) != len(options.ledger_dirs):
            raise DataDirError("there must be as many index directories as ledger directories")
        self._locks: list[DirectoryLock] = []
        self.ballasts = [
            Ballast(
                directory / BALLAST_NAME,
                options.disk.ballast_bytes,
                lambda path: disk.usage(path).free_bytes,
            )
            for _, directory in roles(options)
        ]
        self.instance_id = ""
        self.is_new = False
        try:
            for _, directory in roles(options):
                self._lock(disk, directory)
            self._check_cookies(disk, options)
        except BaseException:
            self.close()
            raise

    def _lock(self, disk: Disk, directory: Path) -> None:
        try:
            make_durable_directory(disk, directory)
            self._locks.append(disk.lock(directory / LOCK_NAME))
            # A killed bookie may have left names that a loss of power would still take.
            disk.sync_directory(directory)
        except BlockingIOError as error:
            raise DataDirError(
                f"{directory} is in use by another process: stop that one first"
            ) from error
        except OSError as error:
            raise DataDirError(f"{directory} is not writable: {error.strerror}") from error

    def _check_cookies(self, disk: Disk, options: BookieOptions) -> None:
        found: dict[str, Cookie] = {}
        empty: dict[str, Path] = {}
        for role, directory in roles(options):
            data = read_file(disk, directory / COOKIE_NAME)
            if data is not None:
                found[role] = Cookie.decode(data, directory / COOKIE_NAME)
            else:
                empty[role] = directory
        _refuse_others(options, found)
        begun = bool(found and empty) and not any(
            set(disk.names(directory)) - _HARMLESS_NAMES - {COOKIE_NAME, COOKIE_NAME + ".tmp"}
            for _, directory in roles(options)
        )
        for directory in empty.values():
            if found and not begun and not options.heals_lost_disks:
                raise DataDirError(
                    f"{directory} is empty although its bookie has stored before: is its disk "
                    "mounted?"
                )
            names = set(disk.names(directory)) - _HARMLESS_NAMES - {COOKIE_NAME + ".tmp"}
            if names:
                raise DataDirError(f"{directory} is not a bookie's and not empty")
        if found:
            self.instance_id = next(iter(found.values())).instance_id
        lost = list(empty.values()) if (found and not begun) or not options.may_be_new else []
        if found and not begun and not lost:
            return
        if lost and options.heals_lost_disks:
            _doubt_all(disk, options, lost)
        elif not found and not options.may_be_new:
            raise DataDirError(
                f"the cluster knows bookie {options.bookie_id}, but its directories are empty "
                f"({', '.join(map(str, empty.values()))}): put its disks back; if they are lost, "
                "`geminga bookieshell recover -force -deleteCookie "
                f"{options.bookie_id}` copies its ledgers to other bookies, and lets it start anew"
            )
        # New, or killed while the first start wrote the cookies.
        self.is_new = not found or begun
        self.instance_id = self.instance_id or uuid.uuid4().hex
        for role, directory in empty.items():
            cookie = Cookie(options.bookie_id, self.instance_id, role, options.cluster_id)
            try:
                replace_file(disk, directory / COOKIE_NAME, cookie.encode())
            except OSError as error:
                raise DataDirError(f"{directory} is not writable: {error.strerror}") from error

    def release_ballast(self) -> bool:
        """Free the ballast in every directory; False if there is none left."""
        released = [ballast.release() for ballast in self.ballasts]
        return any(released)

    def close(self) -> None:
        """Unlock. Idempotent."""
        while self._locks:
            self._locks.pop().release()


def _refuse_others(options: BookieOptions, found: Mapping[str, Cookie]) -> None:
    """Cookies that are not of this bookie, by role. Raises DataDirError."""
    for role, directory in roles(options):
        cookie = found.get(role)
        if cookie is not None and cookie.bookie_id != options.bookie_id:
            raise DataDirError(
                f"{directory} belongs to bookie {cookie.bookie_id}, not {options.bookie_id}"
            )
        if cookie is not None and cookie.role != role:
            raise DataDirError(f"{directory} is directory '{cookie.role}', not '{role}'")
        if cookie is not None and cookie.cluster_id != options.cluster_id:
            theirs, ours = cookie.cluster_id or "none", options.cluster_id or "none"
            raise DataDirError(f"{directory} belongs to cluster {theirs}, not {ours}")
    if len({cookie.instance_id for cookie in found.values()}) > 1:
        raise DataDirError("the directories belong to different bookies of the same id")


def _doubt_all(disk: Disk, options: BookieOptions, lost: Sequence[Path]) -> None:
    """Have the start put all ledgers in doubt. Before the lost directories get their cookies."""
    text = f"the disk of {', '.join(map(str, lost))} was lost"
    for directory in options.journal_dirs:
        try:
            replace_file(disk, directory / UNSYNCED_NAME, text.encode())
        except OSError as error:
            raise DataDirError(f"{directory} is not writable: {error.strerror}") from error


def lost_disks(disk: Disk, options: BookieOptions) -> str:
    """What was lost since the bookie's last start; empty if nothing was. Raises OSError."""
    found = (read_file(disk, directory / UNSYNCED_NAME) for directory in options.journal_dirs)
    return next((text.decode("utf-8", "replace") for text in found if text), "")


async def check_metadata_cookie(
    store: MetadataStore,
    bookie_id: str,
    instance_id: str,
    is_new: bool,
    *,
    adopts_unknown: bool = False,
) -> None:
    """Compare with the cookie in the metadata store; write a new bookie's, with `adopts_unknown` an
    old one's too. Raises DataDirError.
    """
    path = f"{COOKIES_PATH}/{bookie_id}"
    node = await store.get(path)
    if node is None:
        if not is_new and not adopts_unknown:
            raise DataDirError(
                f"bookie {bookie_id} has stored before, but the metadata store doesn't know it: "
                "put the metadata back that belongs to these directories, or give up all that they "
                "have with --accept-metadata-loss"
            )
        text = f'5\nbookieHost: "{bookie_id}"\ninstanceId: "{instance_id}"\n'
        await store.put(path, text.encode(), MUST_NOT_EXIST)
    elif f'instanceId: "{instance_id}"' not in node.value.decode("utf-8", "replace"):
        what = "its directories are empty" if is_new else "its directories are another instance's"
        raise DataDirError(f"bookie {bookie_id} is known to the metadata store, but {what}")

"""Who a bookie is: the cluster's id, its cookie, and the marks in its directories (spec BK-10,
BK-27; Apache's Cookie and LegacyCookieValidation; docs/decisions/0030).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from google.protobuf import text_format

from geminga_bookie.errors import DataDirError
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.data_dirs import roles
from geminga_bookie.storage.disk import Disk, read_file, replace_file
from geminga_protocol.bookkeeper import paths
from geminga_protocol.pb.bookkeeper_metadata_pb2 import CookieFormat
from geminga_runtime.directories import make_durable_directory
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore, Node

COOKIE_VERSION = 5
_OLDEST_VERSION = 4
_INSTANCE = "# geminga instance "
"""Before the instance of the directories that the cookie was written for. Apache's parsers skip
comments."""

APACHE_FOLDER = "current"
"""Beneath each of its directories Apache's bookie keeps its data there."""
APACHE_MARK = "VERSION"
_REFUSAL = b"data of a Geminga bookie, whose files have another format than Apache's\n"
"""Apache's bookie quotes the first line of a file that is no cookie, and doesn't start."""
LAYOUT_VALUE = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"

_log = logging.getLogger(__name__)


async def cluster_of(store: MetadataStore) -> str:
    """The id of the bookies' cluster. Raises DataDirError if the store has not been prepared."""
    node = await store.get(paths.INSTANCE_ID)
    if node is None or not node.value:
        raise DataDirError(
            f"the metadata store has no {paths.INSTANCE_ID}: prepare it by `geminga "
            "initialize-cluster-metadata`, or check the path in metadataServiceUri"
        )
    return node.value.decode("utf-8", "replace")


async def require_layout(store: MetadataStore) -> None:
    """See that the ledgers' layout is known; the first bookie writes it, as Apache's does. Raises
    DataDirError for a layout that isn't known.
    """
    node = await store.get(paths.LAYOUT)
    if node is None:
        try:
            await store.put(paths.LAYOUT, LAYOUT_VALUE, MUST_NOT_EXIST)
        except BadVersion:
            node = await store.get(paths.LAYOUT)
    try:
        paths.layout_of(LAYOUT_VALUE if node is None else node.value)
    except ValueError as error:
        raise DataDirError(str(error)) from None


class BookieIdentity:
    """The cookie of one bookie. All methods also raise MetadataError."""

    def __init__(self, store: MetadataStore, options: BookieOptions) -> None:
        self._store = store
        self._options = options
        self._path = paths.cookie(options.bookie_id)

    async def is_known(self) -> bool:
        """Whether the cluster has a cookie of the bookie."""
        return await self._store.exists(self._path)

    async def check(self, instance_id: str, is_new: bool, in_doubt: bool) -> None:
        """Compare with the cookie; write it for a new bookie, or if its directories were moved or
        lost. `is_new` says that nothing is stored in them, `in_doubt` that something may be
        missing. Raises DataDirError.
        """
        node = await self._store.get(self._path)
        text = self._text(instance_id)
        if node is None:
            await self._write_new(text, is_new)
            return
        self._compare(node, instance_id, is_new, in_doubt)
        if node.value != text:
            _log.info("cookie of bookie %s is written anew", self._options.bookie_id)
            await self._store.put(self._path, text, node.stat.version)

    async def _write_new(self, text: bytes, is_new: bool) -> None:
        bookie_id = self._options.bookie_id
        if not is_new:
            raise DataDirError(
                f"bookie {bookie_id} has entries, but the cluster has no cookie of it: it was "
                "decommissioned, or the metadata is not the one of these directories; with "
                "emptied directories it can start as a new bookie"
            )
        try:
            await self._store.put(self._path, text, MUST_NOT_EXIST)
        except BadVersion:
            raise DataDirError(
                f"another bookie {bookie_id} with directories of its own has just started: each "
                "needs its own bookieId, or its own address and port"
            ) from None

    def _compare(self, node: Node, instance_id: str, is_new: bool, in_doubt: bool) -> None:
        bookie_id, cluster_id = self._options.bookie_id, self._options.cluster_id
        cookie, instance = parse_cookie(node.value, self._path)
        if cookie.bookieHost != bookie_id or cookie.instanceId != cluster_id:
            raise DataDirError(
                f"the cookie in {self._path} is of bookie {cookie.bookieHost} of cluster "
                f"{cookie.instanceId or 'without id'}, not of {bookie_id} of {cluster_id}"
            )
        is_healed = in_doubt and self._options.heals_lost_disks
        if instance != instance_id and (instance or is_new) and not is_healed:
            raise DataDirError(
                f"the cookie of bookie {bookie_id} was written for other directories, on "
                f"{cookie.journalDir}: start it on those; if they are lost, recover its ledgers "
                "on other bookies and delete its cookie before it starts anew"
            )

    def _text(self, instance_id: str) -> bytes:
        options = self._options
        cookie = CookieFormat(
            bookieHost=options.bookie_id,
            journalDir=",".join(map(str, options.journal_dirs)),
            ledgerDirs=listed_directories(options.ledger_dirs),
            instanceId=options.cluster_id,
        )
        if options.index_dirs:
            cookie.indexDirs = listed_directories(options.index_dirs)
        return encode_cookie(cookie, instance_id)


def encode_cookie(cookie: CookieFormat, instance_id: str) -> bytes:
    """The value of a cookie's node; `instance_id` is that of its directories, empty for none."""
    comment = f"{_INSTANCE}{instance_id}\n" if instance_id else ""
    return f"{COOKIE_VERSION}\n{text_format.MessageToString(cookie)}{comment}".encode()


def listed_directories(directories: Sequence[object]) -> str:
    """Their number, and each of them."""
    return "\t".join([str(len(directories)), *map(str, directories)])


def parse_cookie(value: bytes, path: str) -> tuple[CookieFormat, str]:
    """A cookie of Apache's versions 4 and 5, and the instance of the directories if it is one of
    ours. Raises DataDirError.
    """
    text = value.decode("utf-8", "replace")
    version, _, body = text.partition("\n")
    try:
        if not version.strip().isdecimal():
            raise ValueError("its first line is no version, so it is no cookie")
        if int(version) < _OLDEST_VERSION:
            raise ValueError(f"its version is {version}")
        cookie = text_format.Parse(body, CookieFormat())
    except (ValueError, text_format.ParseError) as error:
        raise DataDirError(f"the cookie in {path} can't be read: {error}") from None
    instances = [
        line.removeprefix(_INSTANCE) for line in body.splitlines() if line.startswith(_INSTANCE)
    ]
    return cookie, instances[0].strip() if instances else ""


def refuse_apaches(disk: Disk, options: BookieOptions) -> None:
    """Blocks. Raises DataDirError for directories of one of Apache's bookies."""
    for _, directory in roles(options):
        found = _apache_mark(disk, directory)
        if found is not None and found != _REFUSAL:
            raise DataDirError(
                f"{directory} has data of one of Apache's bookies, whose files have another "
                "format: give this bookie directories of its own"
            )


def mark_for_apache(disk: Disk, options: BookieOptions) -> None:
    """Have Apache's bookies refuse the directories. Blocks. Raises DataDirError."""
    for _, directory in roles(options):
        if _apache_mark(disk, directory) == _REFUSAL:
            continue
        try:
            make_durable_directory(disk, directory / APACHE_FOLDER)
            replace_file(disk, directory / APACHE_FOLDER / APACHE_MARK, _REFUSAL)
        except OSError as error:
            raise DataDirError(f"{directory} is not writable: {error.strerror}") from error


def _apache_mark(disk: Disk, directory: Path) -> bytes | None:
    try:
        if not disk.has_directory(directory / APACHE_FOLDER):
            return None
        return read_file(disk, directory / APACHE_FOLDER / APACHE_MARK)
    except OSError as error:
        raise DataDirError(f"{directory} can't be read: {error.strerror}") from error

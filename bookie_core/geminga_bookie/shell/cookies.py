"""The cookie commands of the shell (spec BK-11; Apache's CookieCommand and its five commands)."""

from __future__ import annotations

import re
from pathlib import Path

from geminga_bookie.autorecovery.tools import Cluster, ToolFailed
from geminga_bookie.errors import DataDirError
from geminga_bookie.process.identity import encode_cookie, listed_directories, parse_cookie
from geminga_bookie.storage.disk import Disk, OsDisk, replace_file
from geminga_protocol.bookkeeper import paths
from geminga_protocol.pb.bookkeeper_metadata_pb2 import CookieFormat
from geminga_runtime.metadata.api import ANY_VERSION, MUST_NOT_EXIST, BadVersion, NoNode

COOKIE_BYTES_MAX = 1024 * 1024
"""More than any cookie has; ZooKeeper takes no larger value."""
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:_.\-]+")


def _path(bookie_id: str) -> str:
    if not _BOOKIE_ID.fullmatch(bookie_id) or bookie_id in (".", "..", paths.READONLY):
        raise ToolFailed(
            f"Invalid bookie id {bookie_id!r}: it has letters, digits and the characters : _ . -"
        )
    return paths.cookie(bookie_id)


def _read_file(path: Path) -> bytes:
    """A file that holds a cookie. Raises ToolFailed."""
    try:
        with path.open("rb") as file:
            value = file.read(COOKIE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ToolFailed(f"Cookie file '{path}' doesn't exist.") from None
    except OSError as error:
        raise ToolFailed(f"Cookie file '{path}' can't be read: {error.strerror}") from None
    if len(value) > COOKIE_BYTES_MAX:
        raise ToolFailed(f"Cookie file '{path}' is no cookie: it is larger than any")
    try:
        parse_cookie(value, str(path))
    except DataDirError as error:
        raise ToolFailed(str(error)) from None
    return value


async def get(at: Cluster, bookie_id: str) -> int:
    """Print a cookie."""
    path = _path(bookie_id)
    node = await at.store.get(path)
    if node is None:
        raise ToolFailed(f"Cookie not found for bookie '{bookie_id}'")
    try:
        cookie, instance = parse_cookie(node.value, path)
    except DataDirError as error:
        raise ToolFailed(str(error)) from None
    at.say(f"Cookie for bookie '{bookie_id}' is:")
    at.say("---")
    at.say(encode_cookie(cookie, instance).decode())
    at.say("---")
    return 0


async def create(at: Cluster, bookie_id: str, file: Path) -> int:
    """Upload a file as the cookie of a bookie that has none."""
    path, value = _path(bookie_id), _read_file(file)
    try:
        await at.store.put(path, value, MUST_NOT_EXIST)
    except BadVersion:
        raise ToolFailed(f"Cookie already exist for bookie '{bookie_id}'") from None
    return 0


async def update(at: Cluster, bookie_id: str, file: Path) -> int:
    """Upload a file instead of a bookie's cookie."""
    path, value = _path(bookie_id), _read_file(file)
    while (node := await at.store.get(path)) is not None:
        try:
            await at.store.put(path, value, node.stat.version)
            return 0
        except BadVersion:
            continue  # changed, or deleted, meanwhile
    raise ToolFailed(f"Cookie not found for bookie '{bookie_id}' to update")


async def delete(at: Cluster, bookie_id: str) -> int:
    """Delete a cookie."""
    try:
        await at.store.delete(_path(bookie_id), ANY_VERSION)
    except NoNode:
        raise ToolFailed(f"Cookie not found for bookie '{bookie_id}'") from None
    return 0


async def generate(
    at: Cluster,
    bookie_id: str,
    journal_dirs: str,
    ledger_dirs: str,
    index_dirs: str | None,
    instance_id: str | None,
    output: Path,
    disk: Disk | None = None,
) -> int:
    """Write a cookie into a file, whole or not at all, and durably. It names no directories of
    ours: with it, directories that hold entries are taken, empty ones are not.
    """
    _path(bookie_id)
    if instance_id is None:
        node = await at.store.get(paths.INSTANCE_ID)
        instance_id = "" if node is None else node.value.decode("utf-8", "replace")
    cookie = CookieFormat(
        bookieHost=bookie_id,
        journalDir=journal_dirs,
        ledgerDirs=listed_directories(ledger_dirs.split(",")),
    )
    if instance_id:
        cookie.instanceId = instance_id
    if index_dirs:
        cookie.indexDirs = listed_directories(index_dirs.split(","))
    try:
        replace_file(disk or OsDisk(), output, encode_cookie(cookie, ""))
    except OSError as error:
        raise ToolFailed(f"{output} can't be written: {error.strerror}") from None
    at.say(f"Successfully saved the generated cookie to {output}")
    return 0

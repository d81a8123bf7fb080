"""Finding brokers in the metadata store (spec PX-03; Apache's BrokerDiscoveryProvider).

Each running broker keeps a record under `/loadbalance/brokers`. The store of a standalone is a
SQLite file that one process writes and others may read. Readers get no notifications, so the
records are read once a second. A killed broker's record stays until the file is opened for writing
again; a connection attempt shows that the broker is dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import trio

from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.metadata.sqlite import SqliteMetadataStore
from geminga_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

BROKERS_PATH = "/loadbalance/brokers"
LOOK_S = 1.0
_KEY = "metadataStoreUrl"


class BrokerRecord(msgspec.Struct, rename="camel", frozen=True):
    """A broker's URLs (the part of Apache's LocalBrokerData that a proxy needs)."""

    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    web_service_url: str | None = None
    web_service_url_tls: str | None = None


def store_file(url: str) -> Path:
    """The file of `sqlite:///path`. Raises ConfigError for other stores."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        return Path(unquote(parts.path))
    if parts.scheme == "sqlite":
        raise ConfigError(f"{_KEY}: {url!r} is not of the form sqlite:///path/metadata.sqlite")
    if parts.scheme == "memory":
        raise ConfigError(f"{_KEY}: a store in a broker's memory can't be read by another process")
    raise ConfigError(
        f"{_KEY}: {url!r}: ZooKeeper and other stores can't be read yet, only sqlite:///path; "
        "name the brokers by brokerServiceURL and brokerWebServiceURL"
    )


async def read_brokers(store: MetadataStore) -> list[BrokerRecord]:
    """All valid records. Raises MetadataError."""
    found = []
    for name in await store.children(BROKERS_PATH):
        node = await store.get(f"{BROKERS_PATH}/{name}")
        if node is None:
            continue
        try:
            found.append(msgspec.json.decode(node.value, type=BrokerRecord))
        except msgspec.MsgspecError as error:
            _log.warning("invalid record of broker %s: %s", name, error)
    return found


async def watch_brokers(
    file: Path,
    found: Callable[[Sequence[BrokerRecord]], object],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `found` when the brokers change, the first time before `started`. A file
    that is missing is retried; one that is replaced is reopened.
    """
    last: list[BrokerRecord] | None = None
    failure = ""
    while True:
        try:
            async with aclosing(await SqliteMetadataStore.open(file, read_only=True)) as store:
                number = _inode(file)
                while _inode(file) == number:
                    records = await read_brokers(store)
                    if records != last:
                        last = records
                        _log.info("%d brokers in %s", len(records), file)
                        found(records)
                    failure = ""
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    await trio.sleep(LOOK_S)
        except (MetadataError, OSError) as error:
            if str(error) != failure:
                failure = str(error)
                _log.warning("brokers can't be looked up now: %s", failure)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
        await trio.sleep(LOOK_S)


def _inode(file: Path) -> int:
    return file.stat().st_ino

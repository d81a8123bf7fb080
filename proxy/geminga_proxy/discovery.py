"""Finding brokers in the metadata store (spec PX-03; Apache's BrokerDiscoveryProvider).

Each running broker keeps a record under `/loadbalance/brokers`. In ZooKeeper they are watched; a
killed broker's record goes with its session. The store of a standalone is a SQLite file that one
process writes and others may read. Readers get no notifications, so the records are read once a
second. A killed broker's record stays until the file is opened for writing again; a connection
attempt shows that the broker is dead.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
import trio

from geminga_runtime.json_text import BadJson, read_json
from geminga_runtime.metadata.api import MetadataError, MetadataStore, StoreUnavailable
from geminga_runtime.metadata.sqlite import SqliteMetadataStore
from geminga_runtime.metadata.zookeeper_url import parse_url, with_scheme
from geminga_runtime.settings import ConfigError

if TYPE_CHECKING:
    from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

_log = logging.getLogger(__name__)

BROKERS_PATH = "/loadbalance/brokers"
LOOK_S = 1.0
SETTLE_S = 0.05
"""Records that change within this time are read together."""
_KEY = "metadataStoreUrl"


class BrokerRecord(msgspec.Struct, rename="camel", frozen=True):
    """A broker's URLs (the part of Apache's LocalBrokerData that a proxy needs)."""

    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    web_service_url: str | None = None
    web_service_url_tls: str | None = None


def check_store(url: str) -> None:
    """Raises ConfigError for a store in which brokers can't be found."""
    if is_sqlite(url):
        store_file(url)
    elif url.startswith("memory:"):
        raise ConfigError(f"{_KEY}: a store in a broker's memory can't be read by another process")
    else:
        try:
            parse_url(with_scheme(url))
        except ConfigError as error:
            raise ConfigError(
                f"{_KEY}: {error}; brokers are found in zk:HOST:2181,HOST:2181/PATH and in "
                "sqlite:///path/metadata.sqlite"
            ) from None


def is_sqlite(url: str) -> bool:
    """Whether the store is that of a standalone."""
    return urlsplit(url).scheme == "sqlite"


def store_file(url: str) -> Path:
    """The file of `sqlite:///path`. Raises ConfigError."""
    parts = urlsplit(url)
    if parts.netloc or len(parts.path) < 2:
        raise ConfigError(f"{_KEY}: {url!r} is not of the form sqlite:///path/metadata.sqlite")
    return Path(unquote(parts.path))


async def read_brokers(store: MetadataStore) -> list[BrokerRecord]:
    """All valid records. Raises MetadataError."""
    found = []
    for name in await store.children(BROKERS_PATH):
        node = await store.get(f"{BROKERS_PATH}/{name}")
        if node is None:
            continue
        try:
            found.append(read_json(node.value, BrokerRecord))
        except BadJson as error:
            _log.warning("invalid record of broker %s: %s", name, error)
    return found


class Finder:
    """Tells when the brokers change; those that are known stay while the store is away."""

    def __init__(self, url: str, found: Callable[[Sequence[BrokerRecord]], object]) -> None:
        self._url = url
        self._found = found
        self._last: list[BrokerRecord] | None = None
        self._failure = ""
        self.looked = trio.Event()
        """Set when the records were read once, or could not be."""

    async def run(self, session_timeout_s: float) -> None:
        """Follow the brokers' records for ever."""
        while True:
            try:
                if is_sqlite(self._url):
                    await self._look_into(store_file(self._url))
                else:
                    store = await _open_zookeeper(self._url, session_timeout_s)
                    async with aclosing(store):
                        await self.follow(store)
            except (MetadataError, OSError) as error:
                self._failed(error)
            await trio.sleep(LOOK_S)

    async def _look_into(self, file: Path) -> None:
        """Once a second. A file that is replaced is reopened."""
        async with aclosing(await SqliteMetadataStore.open(file, read_only=True)) as store:
            number = _inode(file)
            while _inode(file) == number:
                self._learn(await read_brokers(store))
                await trio.sleep(LOOK_S)

    async def follow(self, store: MetadataStore) -> None:
        """Read them again with each change. Raises MetadataError if the store is closed."""
        async with store.watch(BROKERS_PATH) as changes:
            while True:
                try:
                    self._learn(await read_brokers(store))
                except StoreUnavailable as error:
                    self._failed(error)
                with trio.move_on_after(LOOK_S if self._failure else math.inf):
                    await changes.receive()
                    await trio.sleep(SETTLE_S)
                while changes.statistics().current_buffer_used:
                    changes.receive_nowait()

    def _learn(self, records: list[BrokerRecord]) -> None:
        if records != self._last:
            self._last = records
            _log.info("%d brokers in %s", len(records), self._url)
            self._found(records)
        self._failure = ""
        self.looked.set()

    def _failed(self, error: Exception) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            _log.warning("brokers can't be looked up now: %s", self._failure)
        self.looked.set()


async def _open_zookeeper(url: str, session_timeout_s: float) -> ZooKeeperMetadataStore:
    """Raises ConfigError if kazoo is missing, MetadataError."""
    try:
        from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
    except ImportError as error:
        raise ConfigError(str(error)) from None
    return await ZooKeeperMetadataStore.open(with_scheme(url), session_timeout_s=session_timeout_s)


def _inode(file: Path) -> int:
    return file.stat().st_ino

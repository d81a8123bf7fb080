"""Clients of the brokers, shared by all reads and writes of a process.

Spark forks its workers and reuses them for many tasks: there is one client for each process and
settings, and none survives a fork.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import geminga
import geminga.blocking
from pyspark_pulsar._options import ClientSettings
from pyspark_pulsar.errors import InvalidOption

ASKED_AT_ONCE_MAX = 8
"""Items that `for_each` handles at the same time."""
CLIENTS_MAX = 8
"""Clients that a process keeps; the least recently used one is closed."""

_clients: OrderedDict[ClientSettings, geminga.blocking.Client] = OrderedDict()
_lock = threading.Lock()
_pid = os.getpid()
T = TypeVar("T")
R = TypeVar("R")


def client_for(settings: ClientSettings) -> geminga.blocking.Client:
    """The client of this process for these settings. The caller must not close it. Raises
    InvalidOption.
    """
    global _pid
    with _lock:
        if _pid != os.getpid():
            # They belong to the parent, as do their connections.
            _clients.clear()
            _pid = os.getpid()
        client = _clients.get(settings)
        if client is None:
            client = _connected(settings)
            _clients[settings] = client
        _clients.move_to_end(settings)
        surplus = _clients.popitem(last=False)[1] if len(_clients) > CLIENTS_MAX else None
    if surplus is not None:
        surplus.close()
    return client


def _connected(settings: ClientSettings) -> geminga.blocking.Client:
    try:
        return geminga.blocking.connect(settings.service_url, **settings.keywords())
    except geminga.InvalidServiceUrlError as error:
        raise InvalidOption("service.url", str(error)) from None


def for_each(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The function's results for all items, computed a few at a time."""
    if len(items) < 2:
        return [function(each) for each in items]
    with ThreadPoolExecutor(min(ASKED_AT_ONCE_MAX, len(items))) as pool:
        return list(pool.map(function, items))


def close_clients() -> None:
    """Close the clients of this process; `client_for` creates new ones."""
    with _lock:
        own = list(_clients.values()) if _pid == os.getpid() else []
        _clients.clear()
    for client in own:
        client.close()


def _after_fork() -> None:
    # A thread that the child doesn't have may have held the lock.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_clients)

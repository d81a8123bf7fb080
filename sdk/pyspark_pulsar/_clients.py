"""Clients of the brokers, shared by all that one process reads and writes.

Spark's workers are forked, and used again for many tasks: a client is made once for each process
and settings, and none outlives a fork.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict

import geminga
import geminga.blocking
from pyspark_pulsar._options import ClientSettings
from pyspark_pulsar.errors import InvalidOption

CLIENTS_MAX = 8
"""Clients of different settings that one process keeps; the one unused for longest is closed."""

_clients: OrderedDict[ClientSettings, geminga.blocking.Client] = OrderedDict()
_lock = threading.Lock()
_pid = os.getpid()


def client_for(settings: ClientSettings) -> geminga.blocking.Client:
    """The client of this process for these settings; not to be closed by whoever asks. Raises
    InvalidOption.
    """
    global _pid
    with _lock:
        if _pid != os.getpid():
            # They are the parent's, and so are their connections.
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
    except geminga.InvalidServiceUrl as error:
        raise InvalidOption("service.url", str(error)) from None


def close_clients() -> None:
    """Close those of this process; the next who asks gets a new one."""
    with _lock:
        own = list(_clients.values()) if _pid == os.getpid() else []
        _clients.clear()
    for client in own:
        client.close()


def _after_fork() -> None:
    # The lock may have been held by a thread that the child doesn't have.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_clients)

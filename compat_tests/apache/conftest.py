"""Apache ZooKeeper for the tests of a folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from compat_tests.apache.zookeeper import ZooKeeperServer, start_zookeeper
from compat_tests.missing import ZOOKEEPER, skipped_without

LEFT_S = 20.0
"""A close that the server doesn't answer leaves its thread for as long."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server of the module's own: its tests pause and kill it."""
    with skipped_without(ZOOKEEPER):
        running = start_zookeeper(tmp_path_factory.mktemp("zookeeper") / "server")
    yield running
    running.kill()


@pytest.fixture(autouse=True)
def no_client_is_left() -> Iterator[None]:
    """A client's thread that outlives its test disturbs tests that draw or simulate."""
    before = set(_clients())
    yield
    deadline = time.monotonic() + LEFT_S
    for each in set(_clients()) - before:
        each.join(max(deadline - time.monotonic(), 0))
        assert not each.is_alive(), "a client of ZooKeeper outlives its test"


def _clients() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if "zk_loop" in each.name]

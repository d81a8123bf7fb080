"""Apache ZooKeeper for the tests of a folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.apache.zookeeper import ZooKeeperServer, start_zookeeper
from compat_tests.missing import ZOOKEEPER, skipped_without


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server of the module's own: its tests pause and kill it."""
    with skipped_without(ZOOKEEPER):
        running = start_zookeeper(tmp_path_factory.mktemp("zookeeper") / "server")
    yield running
    running.kill()

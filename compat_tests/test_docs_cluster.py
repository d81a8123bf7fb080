"""What CLUSTER.md says that three machines survive, with the settings that it gives: one bookie of
three is lost for longer than its session.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import geminga.blocking
import geminga.blocking.admin
from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.missing import ZOOKEEPER, skipped_without
from compat_tests.processes import wait_until
from compat_tests.test_deploy import copies_of_the_guide
from geminga.blocking.admin import AdminClient
from geminga_protocol.bookkeeper import paths

pytestmark = pytest.mark.java

NAMESPACE = "public/default"
TOPICS = [f"persistent://{NAMESPACE}/kept-{number}" for number in range(8)]
"""So many that the bookie which is lost has ledgers of some."""
SESSION_MS = 3000
WAIT_S = 60.0
BUSY_S = 15.0
"""What a busy machine may add to a pause; with the guide's timeout less than a client's."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three bookies as in the guide, with shorter sessions."""
    settings = {"zkTimeout": str(SESSION_MS)}
    with ExitStack() as stack:
        with skipped_without(ZOOKEEPER):
            found = stack.enter_context(running_cluster(tmp_path, 3, ours=3, settings=settings))
        yield found


def move(topic: str, admin: AdminClient, brokers: dict[str, str]) -> None:
    """Give the topic's bundle to the broker that hasn't it; they are ids by URL."""
    before = admin.lookups.broker(topic).broker_url
    (url,) = brokers.keys() - {before}
    bundle = admin.lookups.bundle(topic)
    admin.bundles.unload(NAMESPACE, bundle, destination_broker=brokers[url])
    assert admin.lookups.broker(topic).broker_url == url


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_one_bookie_of_three_may_be_lost(cluster: Cluster, number: signal.Signals) -> None:
    """Publishes, new topics, topics that another broker takes over, and the health check go on."""
    settings = copies_of_the_guide()
    silent_s = int(settings["bookkeeperClientTimeoutInSeconds"]) * (number == signal.SIGSTOP)
    second = cluster.beside()
    with ExitStack() as stack:
        admins = []
        for each in (cluster, second):
            server = each.start_ours(settings)
            stack.callback(server.kill)
            admins.append(stack.enter_context(geminga.blocking.admin.connect(server.web_url)))
        client = stack.enter_context(geminga.blocking.connect(cluster.url))
        for topic in TOPICS:
            admins[0].subscriptions.create(topic, "all")
        producers = [client.create_producer(topic) for topic in TOPICS]
        for producer in producers:
            producer.send(b"before")

        keeper = KazooClient(cluster.zookeeper.address)
        keeper.start()
        stack.callback(keeper.close)
        stack.callback(keeper.stop)
        lost = cluster.bookies[0]
        assert lost.bookie_id in keeper.get_children(paths.available())
        os.killpg(lost.pid, number)
        began_s = time.monotonic()
        for receipt in [producer.submit(b"at once") for producer in producers]:
            receipt.wait()
        assert time.monotonic() - began_s < silent_s + BUSY_S
        # Until its session has ended, and its registration with it.
        wait_until(
            lambda: lost.bookie_id not in keeper.get_children(paths.available()),
            cluster.zookeeper.process, cluster.zookeeper.folder / "log", timeout_s=WAIT_S,
        )  # fmt: skip

        assert [admin.brokers.healthcheck() for admin in admins] == ["ok", "ok"]
        with client.create_producer(f"persistent://{NAMESPACE}/new") as producer:
            producer.send(b"new")
        brokers = {each.url: each.broker_id for each in (cluster, second)}
        for topic, producer in zip(TOPICS, producers, strict=True):
            move(topic, admins[0], brokers)
            producer.send(b"after")
            with client.create_reader(topic, geminga.EARLIEST) as reader:
                got = [reader.read_next().data for _ in range(3)]
            assert got == [b"before", b"at once", b"after"]

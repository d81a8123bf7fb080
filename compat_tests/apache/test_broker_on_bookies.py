"""Our broker on Apache's ZooKeeper and bookies, with the official Python client: a bookie and the
broker are killed, and Apache's broker and ours serve the same topics by turns.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial

import pulsar
import pytest
import trio
from click.testing import CliRunner

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ServerProcess, wait_until
from geminga_broker.cli_cluster import initialize_cluster_metadata
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

SUBSCRIPTION = "s"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with skipped_without(APACHE), running_cluster(folder, 4) as found:
        yield found


@contextmanager
def client_of(cluster: Cluster) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.url, operation_timeout_seconds=60)
    try:
        yield client
    finally:
        client.close()


def take(consumer: pulsar.Consumer, count: int) -> list[str]:
    """Receive and acknowledge."""
    found = []
    for _ in range(count):
        message = consumer.receive(timeout_millis=60_000)
        consumer.acknowledge(message)
        found.append(message.data().decode())
    return found


def publish(client: pulsar.Client, topic: str, texts: list[str]) -> None:
    """Each has its receipt."""
    producer = client.create_producer(topic)
    for text in texts:
        producer.send(text.encode())
    producer.close()


def by_turns(cluster: Cluster, starts: list[Callable[[], ServerProcess]]) -> None:
    """Each serves what the one before left, and leaves something."""
    topic = "persistent://public/default/by-turns"
    for turn, start in enumerate(starts):
        server = start()
        try:
            with client_of(cluster) as client:
                consumer = client.subscribe(topic, SUBSCRIPTION, pulsar.ConsumerType.Shared)
                if turn:
                    assert take(consumer, 5) == [f"{turn - 1}-{n}" for n in range(15, 20)]
                publish(client, topic, [f"{turn}-{n}" for n in range(20)])
                assert take(consumer, 15) == [f"{turn}-{n}" for n in range(15)]
        finally:
            assert server.stop() in (0, 130), server.log_tail()


def test_apaches_broker_and_ours_serve_by_turns(cluster: Cluster) -> None:
    ours, apache = cluster.start_ours, cluster.start_apache
    by_turns(cluster, [ours, apache, ours, apache])


def test_three_stores(cluster: Cluster) -> None:
    """The cluster's own, the one that clusters share, and the bookies'."""
    zookeeper = cluster.zookeeper
    own, shared = f"{zookeeper.url}/own", f"{zookeeper.url}/shared"
    ledgers = f"zk+hierarchical://127.0.0.1:{zookeeper.port}/ledgers"
    done = CliRunner().invoke(
        initialize_cluster_metadata,
        ["-c", "c1", "-md", own, "-cms", shared, "-uw", "http://127.0.0.1:1",
         "--existing-bk-metadata-service-uri", ledgers],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    stores = {
        "metadataStoreUrl": own,
        "configurationMetadataStoreUrl": shared,
        "bookkeeperMetadataServiceUri": ledgers,
    }
    ours, apache = partial(cluster.start_ours, stores), partial(cluster.start_apache, stores)
    by_turns(cluster, [ours, apache, ours])
    server = ours()
    try:
        with urllib.request.urlopen(f"{server.web_url}/metrics/", timeout=30) as answer:
            page = answer.read().decode()
    finally:
        server.stop()
    puts = re.findall(r'_store_put_bytes_total{.*,name="([\w-]+)"}', page)
    kinds = ("", "configuration-", "bookkeeper-")
    assert sorted(puts) == sorted(f"{kind}metadata-store" for kind in kinds)


def test_a_broker_refuses_an_unknown_cluster(cluster: Cluster) -> None:
    assert cluster.refusal("--cluster", "nobody") == (
        "Error: clusterName: the metadata store has no cluster 'nobody' (it has: c1); set one that "
        "it has, or prepare this one by `geminga initialize-cluster-metadata`"
    )
    nowhere = cluster.zookeeper.url.replace("zk:", "zk+hierarchical://") + "/mistyped/ledgers"
    line = cluster.refusal(settings={"bookkeeperMetadataServiceUri": nowhere})
    assert line.startswith("Error: bookkeeperMetadataServiceUri: the metadata store has no /ledg")
    record = trio.run(cluster_record, cluster)
    server = cluster.start_ours()
    assert server.stop() in (0, 130), server.log_tail()
    assert trio.run(cluster_record, cluster) == record, "set by initialize-cluster-metadata"


def test_an_administrator_ends_a_broker(cluster: Cluster) -> None:
    server = cluster.start_ours()
    try:
        with client_of(cluster) as client:
            client.create_producer("persistent://public/default/drained").send(b"kept")
            ask = urllib.request.Request(
                f"{server.web_url}/admin/v2/brokers/shutdown", method="POST"
            )
            with urllib.request.urlopen(ask, timeout=60) as answer:
                assert answer.status == 204
            assert server.process.wait(60) == 0, server.log_tail()
    finally:
        server.kill()
    assert "Traceback" not in server.log_path.read_text()


def test_two_brokers_of_one_id_say_so(cluster: Cluster) -> None:
    """A configuration that was copied without a change; the second one has another machine."""
    complaint = f"has the id of this one, {cluster.broker_id}"
    servers = [cluster.start_ours({"bindAddress": "127.0.0.1"})]
    try:
        servers[0].kill()
        servers[0] = cluster.start_ours({"bindAddress": "127.0.0.1"})
        with client_of(cluster) as client:
            # ZooKeeper's answers for this come behind what it tells of the registration.
            client.create_producer("persistent://public/default/successor").send(b"serves")
        assert complaint not in servers[0].log_path.read_text(), "it is its own successor"
        servers.append(cluster.start_ours({"bindAddress": "127.0.0.2"}))
        for server in servers:
            log_path = server.log_path
            wait_until(
                lambda path=log_path: complaint in path.read_text(),
                server.process, log_path, timeout_s=60,
            )  # fmt: skip
        logs = [server.log_path.read_text() for server in servers]
        assert [log.count(complaint) for log in logs] == [1, 1]
    finally:
        for server in servers:
            server.kill()


async def cluster_record(cluster: Cluster) -> bytes:
    """Where other clusters find this one."""
    async with aclosing(await ZooKeeperMetadataStore.open(cluster.zookeeper.url)) as store:
        node = await store.get("/admin/clusters/c1")
        assert node is not None
        return node.value


def test_every_receipt_survives_a_bookie_and_the_broker(cluster: Cluster) -> None:
    topic = "persistent://public/default/on-bookies"
    receipts: list[str] = []
    server = cluster.start_ours()
    try:
        with client_of(cluster) as client:
            client.subscribe(topic, SUBSCRIPTION).close()
            producer = client.create_producer(topic, send_timeout_millis=60_000)
            for number in range(600):
                if number == 200:
                    cluster.bookies[0].kill()
                if number == 400:
                    server.kill()
                    server = cluster.start_ours()
                producer.send(b"%d" % number)
                receipts.append(str(number))
            consumer = client.subscribe(topic, SUBSCRIPTION)
            got: list[str] = []
            while len(set(got)) < len(receipts):
                got += take(consumer, 1)
            assert sorted(set(got), key=int) == receipts
    finally:
        server.kill()

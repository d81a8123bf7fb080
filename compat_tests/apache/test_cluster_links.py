"""Links between the parts of a cluster are cut, also one way, while the official client publishes:
our broker on four of our bookies and a real ZooKeeper, each in a network namespace of its own. When
the links are whole again every receipt is read by our SDK, and by Apache's ledger client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.links import Links, NotPermitted, open_links
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.receipts import (
    WAIT_S,
    LedgerEntries,
    Publisher,
    check_in_order,
    ledger_entries,
)
from compat_tests.missing import IPROUTE2, ZOOKEEPER, skip_unpermitted, skipped_without
from compat_tests.processes import ServerProcess, wait_until
from geminga_bookie.client.metadata_store import decode
from geminga_broker.ownership.brokers import BROKERS_PATH
from geminga_protocol.bookkeeper import paths

pytestmark = pytest.mark.java

SESSION_MS = 3000
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
    "bookkeeperClientTimeoutInSeconds": "3",
}
BOOKIES = 4
GAP_S = 20.0
"""What a message waits at most: a request's time-out, one of a connection, and a busy machine's."""
BROKER, SECOND, KEEPER = "broker", "second", "zookeeper"


@dataclass
class World:
    """The cluster, its links, and who looks at them from outside."""

    cluster: Cluster
    links: Links
    keeper: KazooClient
    apaches: LedgerEntries

    def names(self, ledger_id: int) -> list[str]:
        """Places of the bookies that a ledger's next entries go to."""
        value, _ = self.keeper.get(paths.ledger(ledger_id, paths.Layout.HYBRID))
        ensembles = decode(ledger_id, value).ensembles
        ids = [each.bookie_id for each in self.cluster.bookies]
        return [f"bookie-{ids.index(each)}" for each in ensembles[max(ensembles)]]

    def is_registered(self, name: str) -> bool:
        """The bookie of that place, or any broker."""
        if name == BROKER:
            return bool(self.keeper.get_children(BROKERS_PATH))
        bookie = self.cluster.bookies[int(name.rpartition("-")[2])]
        return bool(self.keeper.exists(f"{paths.available()}/{bookie.bookie_id}"))

    def check(self, publisher: Publisher) -> None:
        """All receipts are there."""
        assert publisher.receipts
        check_in_order(self.cluster.url, publisher.topic, publisher.receipts)
        self.apaches.check(publisher.receipts)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("links")
    with ExitStack() as stack:
        try:
            with skipped_without(IPROUTE2):
                links = stack.enter_context(open_links())
        except NotPermitted as reason:
            skip_unpermitted(str(reason))
            raise
        with skipped_without(ZOOKEEPER):
            cluster = stack.enter_context(
                running_cluster(folder, BOOKIES, ours=BOOKIES, links=links)
            )
        keeper = KazooClient(cluster.zookeeper.address)
        keeper.start()
        stack.callback(keeper.close)
        stack.callback(keeper.stop)
        entries = ledger_entries(cluster.zookeeper.address, folder / "apache.log")
        yield World(cluster, links, keeper, stack.enter_context(entries))


@pytest.fixture
def world(everything: World) -> Iterator[World]:
    yield everything
    everything.links.heal()
    names = [f"bookie-{number}" for number in range(BOOKIES)]
    until(everything, lambda: all(map(everything.is_registered, names)))


@pytest.fixture
def broker(world: World) -> Iterator[ServerProcess]:
    server = world.cluster.start_ours(SETTINGS)
    yield server
    world.links.heal()
    server.stop()
    until(world, lambda: not world.is_registered(BROKER))


@contextmanager
def publishing(world: World) -> Iterator[Publisher]:
    """Once all links are whole, it goes on, and every receipt is read again."""
    publisher = Publisher(world.cluster.url)
    try:
        publisher.wait_more()
        yield publisher
        world.links.heal()
        publisher.wait_more()
        assert publisher.failures == []
        assert publisher.longest_s < GAP_S
    finally:
        publisher.finish()
    world.check(publisher)


def until(world: World, condition: Callable[[], bool]) -> None:
    """While ZooKeeper lives."""
    zookeeper = world.cluster.zookeeper
    wait_until(condition, zookeeper.process, zookeeper.folder / "log", timeout_s=WAIT_S)


def cut(world: World, a: str, b: str, way: str) -> None:
    """Both ways, or only what `a` asks, or only what `b` answers."""
    if way == "answers":
        world.links.cut(b, a, one_way=True)
    else:
        world.links.cut(a, b, one_way=way == "requests")


@pytest.mark.parametrize("way", ["both", "requests", "answers"])
def test_broker_and_bookie(world: World, broker: ServerProcess, way: str) -> None:
    """The bookie is replaced by the one that is left over."""
    with publishing(world) as publisher:
        before = world.names(publisher.ledger_id)
        cut(world, BROKER, before[0], way)
        until(world, lambda: before[0] not in world.names(publisher.ledger_id))
        publisher.wait_more()


@pytest.mark.parametrize("way", ["both", "answers"])
def test_broker_and_two_bookies(world: World, broker: ServerProcess, way: str) -> None:
    """Nothing is confirmed by the one that is left of an ensemble, until another has it too."""
    with publishing(world) as publisher:
        before = world.names(publisher.ledger_id)
        for name in before[:2]:
            cut(world, BROKER, name, way)
        until(world, lambda: before != world.names(publisher.ledger_id))
        publisher.wait_more()


@pytest.mark.parametrize("way", ["both", "answers"])
def test_broker_and_zookeeper(world: World, broker: ServerProcess, way: str) -> None:
    """For longer than its session lives: a loaded topic goes on, and the broker registers again."""
    with publishing(world) as publisher:
        cut(world, BROKER, KEEPER, way)
        until(world, lambda: not world.is_registered(BROKER))
        publisher.wait_more()
        world.links.heal()
        until(world, lambda: b"registered again" in broker.log_path.read_bytes())


@pytest.mark.parametrize("way", ["both", "requests"])
def test_bookie_and_zookeeper(world: World, broker: ServerProcess, way: str) -> None:
    """For longer than its session lives: it goes on with what it has."""
    with publishing(world) as publisher:
        name = world.names(publisher.ledger_id)[0]
        bookie = world.cluster.bookies[int(name.rpartition("-")[2])]
        assert isinstance(bookie, OurBookie)
        cut(world, name, KEEPER, way)
        until(world, lambda: not world.is_registered(name))
        publisher.wait_more()
        world.links.heal()
        until(world, lambda: world.is_registered(name))


def test_a_broker_without_zookeeper_while_another_begins(
    world: World, broker: ServerProcess
) -> None:
    """Cut off from ZooKeeper, but from no bookie, the first one goes on until the second takes its
    topic over: when it was last heard of there was no other one. Then it confirms nothing any more,
    and sends its clients there once it hears of the other one.
    """
    cluster = world.cluster
    publisher = Publisher(cluster.url)
    place, cluster.place = cluster.place, world.links.place(SECOND)
    second = None
    try:
        publisher.wait_more()
        world.links.cut(BROKER, KEEPER)
        until(world, lambda: not world.is_registered(BROKER))
        second = cluster.start_ours(SETTINGS)
        publisher.wait_more()
        successor = Publisher(cluster.url, publisher.topic, 1_000_000)
        try:
            successor.wait_more()
            confirmed = len(publisher.receipts)
            successor.wait_more(200)
            assert len(publisher.receipts) == confirmed
            world.links.heal()
            publisher.wait_more()
            successor.wait_more()
        finally:
            successor.finish()
        publisher.finish()
        assert successor.failures == publisher.failures == []
        world.check(successor)
        world.check(publisher)
    finally:
        publisher.finish()
        cluster.place = place
        if second is not None:
            second.kill()

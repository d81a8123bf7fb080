"""Several brokers on one metadata store in memory, each with a load manager of its own. Their loads
are what a test sets; unloading and splitting is played.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import Bundles, Namespaces
from geminga_broker.config import BrokerConfig
from geminga_broker.loadbalance.manager import BrokerParts, LoadManager
from geminga_broker.loadbalance.model import NamespaceBundleStats, ResourceUsage, broker_path
from geminga_broker.loadbalance.reports import LocalBrokerData, decode_report, encode_report
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.ownership.brokers import ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.election import Election
from geminga_broker.ownership.owned import BundleOwnership
from geminga_runtime.metadata.memory import MemoryMetadataStore

NAMESPACE = "public/default"
MIB = float(1 << 20)
_BEGAN_MS = 1_700_000_000_000


def _clock_ms() -> int:
    """The wall clock goes with the loop's: of two reports in one of its milliseconds one counts."""
    return _BEGAN_MS + round(trio.current_time() * 1000)


def bundles(count: int, namespace: str = NAMESPACE) -> list[str]:
    """Names of a namespace's bundles."""
    return [f"{namespace}/{name}" for name in Bundles.even(count).names()]


def traffic(mib: float, *, topics: int = 10, rate: float = 1000.0) -> NamespaceBundleStats:
    """The load of a bundle: MiB and messages a second, half of them in."""
    half = mib * MIB / 2
    return NamespaceBundleStats(
        msg_throughput_in=half,
        msg_throughput_out=half,
        msg_rate_in=rate / 2,
        msg_rate_out=rate / 2,
        topics=topics,
    )


class Broker:
    """One broker. Its report is written by the test, not by the load manager."""

    def __init__(self, cluster: Cluster, host: str, config: LoadBalanceConfig) -> None:
        self.cluster = cluster
        self.id = f"{host}:8080"
        self.store = cluster.store.another_session()
        self.addresses = Addresses(f"pulsar://{host}:6650", f"http://{host}:8080")
        self.ownership = BundleOwnership(self.store, lambda _bundles: None)
        self.ownership.addresses = self.addresses
        self.election = Election(self.store)
        self.manager = LoadManager(
            replace(BrokerConfig(), load_balance=config),
            BrokerParts(
                self.store,
                Namespaces(self.store),
                self.ownership,
                self.election,
                ActiveBrokers(self.store),
                cluster,
                self.unload,
                dict,
            ),
            chance=random.Random(7),
            clock_ms=_clock_ms,
        )
        self.report = LocalBrokerData(
            web_service_url=self.addresses.web_url,
            pulsar_service_url=self.addresses.broker_url,
            broker_version_string="Geminga 1",
            load_manager_class_name=config.load_manager,
        )
        self.stats: dict[str, NamespaceBundleStats] = {}
        self.cpu = 0.0
        self.calls: list[str] = []
        """What the leader asked it to do."""
        self.called = trio.Event()
        self.answers = 204
        self.takes_s = 0.5
        """How long that takes; infinite: it never answers."""
        self.scope = trio.CancelScope()

    async def tell(self) -> None:
        """Write the report."""
        usage = msgspec.structs.replace(
            self.manager.reporter.host.usage, cpu=ResourceUsage(self.cpu, 100.0)
        )
        refreshed = self.report.refreshed(usage, dict(self.stats))
        last = self.report.last_update
        self.report = msgspec.structs.replace(refreshed, last_update=last + 1)
        await self.write(encode_report(self.report))
        self.report = self.report.written()

    async def write(self, value: bytes) -> None:
        """Write any report."""
        path = broker_path(self.id)
        node = await self.store.get(path)
        if node is None:
            await self.store.put(path, value, epoch=self.store.session.epoch)
        else:
            await self.store.put(path, value)

    def asked(self, what: str) -> None:
        """The leader asks for that."""
        self.calls.append(what)
        self.called.set()

    async def unload(self, bundle: BundleId, destination: str) -> bool:
        """Played `BundleUnloader.unload`."""
        self.asked(f"unload {bundle} {destination}")
        await trio.sleep(self.takes_s)
        return await self.cluster.move(str(bundle), self, destination)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until killed."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.election.run, self.addresses)
                nursery.start_soon(self.manager.run)
                task_status.started()

    async def kill(self) -> None:
        """As by kill -9, and its session has ended."""
        self.store.expire_session()
        self.store.set_available(False)
        self.scope.cancel()
        await wait_all_tasks_blocked()


class Cluster:
    """The brokers. Implements `Peers` for each of them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.store = MemoryMetadataStore()
        self.brokers: dict[str, Broker] = {}
        self._nursery = nursery

    async def start(self, host: str, config: LoadBalanceConfig | None = None) -> Broker:
        """A further broker; the first one leads."""
        broker = Broker(self, host, config or LoadBalanceConfig())
        self.brokers[broker.id] = broker
        await broker.tell()
        await self._nursery.start(broker.run)
        return broker

    async def namespace(self, name: str = NAMESPACE, count: int = 4) -> None:
        """Make a namespace."""
        record = {"bundles": Bundles.even(count).to_json()}
        await self.store.put(f"/admin/local-policies/{name}", msgspec.json.encode(record))

    async def call(
        self,
        broker_id: str,
        method: str,
        path_and_query: str,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> PeerAnswer:
        """See `admin.peers.Peers.call`."""
        assert method == "PUT"
        parts = urlsplit(path_and_query)
        *name, action = unquote(parts.path).removeprefix("/admin/v2/namespaces/").split("/")
        bundle, query = "/".join(name), parse_qs(parts.query)
        broker = self.brokers.get(broker_id)
        if broker is None or not await self.store.exists(broker_path(broker_id)):
            raise PeerUnreachable(f"broker {broker_id} is not registered")
        destination = query.get("destinationBroker", [""])[0]
        rest = destination if action == "unload" else query["unload"][0]
        broker.asked(f"{action} {bundle} {rest}")
        assert timeout_s is not None
        with trio.move_on_after(timeout_s) as scope:
            await trio.sleep(broker.takes_s)
        if scope.cancelled_caught:
            raise PeerUnreachable("no answer in time")
        if broker.answers >= 300:
            return PeerAnswer(broker.answers, b'{"reason":"no"}')
        if action == "unload":
            done = await self.move(bundle, broker, destination)
        else:
            done = await self.split(bundle, broker)
        return PeerAnswer(204, b"") if done else PeerAnswer(404, b'{"reason":"no such bundle"}')

    async def move(self, bundle: str, source: Broker, destination: str) -> bool:
        """Its clients go on at another broker."""
        stats = source.stats.pop(bundle, None)
        if stats is None:
            return False
        if not destination:
            leader = next(each for each in self.brokers.values() if each.election.is_leader)
            destination = await leader.manager.choose(BundleId.parse(bundle)) or source.id
        self.brokers[destination].stats[bundle] = stats
        return True

    async def split(self, bundle: str, owner: Broker) -> bool:
        """Cut it in the middle."""
        stats = owner.stats.pop(bundle, None)
        if stats is None:
            return False
        low, end = BundleId.parse(bundle).bounds
        middle = (low + end) // 2
        namespaces = Namespaces(self.store)
        namespace = BundleId.parse(bundle).namespace
        old = (await namespaces.bundles(namespace)).boundaries
        await namespaces.change_local_policies(
            namespace,
            lambda record: record | {"bundles": Bundles(sorted({*old, middle})).to_json()},
        )
        for name in (await namespaces.bundles(namespace)).names():
            part = BundleId(namespace, name)
            if low <= part.bounds[0] < end:
                owner.stats[str(part)] = msgspec.structs.replace(stats, topics=stats.topics // 2)
        return True

    async def tell(self) -> None:
        """All brokers write their reports."""
        for broker in self.brokers.values():
            if not broker.scope.cancel_called:
                await broker.tell()

    async def pass_minutes(self, minutes: float) -> None:
        """Time goes by, and brokers report twice a minute."""
        for _ in range(int(minutes * 2)):
            await trio.sleep(30)
            await self.tell()

    def holders(self) -> dict[str, list[str]]:
        """Broker to its bundles."""
        return {broker.id: sorted(broker.stats) for broker in self.brokers.values()}

    async def report_of(self, broker: Broker) -> LocalBrokerData:
        """What stands in the store."""
        node = await self.store.get(broker_path(broker.id))
        assert node is not None
        report = decode_report(node.value)
        assert isinstance(report, LocalBrokerData)
        return report


@asynccontextmanager
async def playing(
    hosts: Sequence[str], config: LoadBalanceConfig | None = None
) -> AsyncIterator[Cluster]:
    """A cluster; the first broker leads."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        await cluster.namespace()
        for host in hosts:
            await cluster.start(host, config)
        await wait_all_tasks_blocked()
        yield cluster
        nursery.cancel_scope.cancel()

"""The load program: `python -m compat_tests.soak.load DIRECT_URL PROXY_URL WEB_URL RATE SECONDS
INTERVAL_S`. Prints a `Load` as a line of JSON each interval, and one at the end, when all that was
confirmed had time to come.
"""

from __future__ import annotations

import sys
from collections import Counter

import msgspec
import trio

import geminga
import geminga.admin
from compat_tests.soak import flows
from compat_tests.soak.flows import PATIENCE_S, Figures, Flow
from compat_tests.soak.samples import Load, spread

NAMESPACE = "soak/load"
EXACT = "soak/exact"
_SIDE_S = 60.0
"""How often is compacted and caught up."""


class Program:
    """All flows, and what they saw."""

    def __init__(self, direct: str, proxy: str, web: str, rate: float, seconds: float) -> None:
        self._urls = {False: direct, True: proxy}
        self._web = web
        self._seconds = seconds
        self._figures = Figures()
        self._flows = [
            Flow(shape, EXACT if shape.deduplicated else NAMESPACE, self._figures)
            for shape in flows.shapes(rate)
        ]
        self._publishing_ends = trio.Event()
        self._all_ends = trio.Event()

    async def run(self, interval_s: float) -> None:
        """Until the time is over, and all has come or is lost."""
        async with (
            geminga.connect(self._urls[False]) as direct,
            geminga.connect(self._urls[True]) as proxied,
            geminga.admin.connect(self._web) as admin,
            trio.open_nursery() as nursery,
        ):
            clients = {False: direct, True: proxied}
            await self._prepare(admin)
            nursery.start_soon(self._report, interval_s)
            for flow in self._flows:
                client = clients[flow.shape.through_proxy]
                for number in range(flow.shape.consumers):
                    nursery.start_soon(flow.consume, client, self._all_ends, number)
            async with trio.open_nursery() as publishing:
                for flow in self._flows:
                    client = clients[flow.shape.through_proxy]
                    publishing.start_soon(flow.publish, client, self._publishing_ends)
                self._start_side_works(publishing, clients, admin)
                await trio.sleep(self._seconds)
                self._publishing_ends.set()
            with trio.move_on_after(PATIENCE_S):
                for flow in self._flows:
                    await flow.drained()
            for flow in self._flows:
                flow.settle(float("inf"), 0)
            self._all_ends.set()
            print(msgspec.json.encode(self._load()).decode(), flush=True)
            nursery.cancel_scope.cancel()

    async def _prepare(self, admin: geminga.admin.AdminClient) -> None:
        """Namespaces, in which retention keeps a little and duplicates are refused."""
        clusters = await admin.clusters.list()
        info = geminga.admin.TenantInfo(allowed_clusters=clusters)
        await admin.tenants.create("soak", info)
        for namespace in (NAMESPACE, EXACT):
            await admin.namespaces.create(namespace)
        keeps = geminga.admin.RetentionPolicies(
            retention_time_in_minutes=3, retention_size_in_mb=100
        )
        await admin.namespace_policies.retention.set(NAMESPACE, keeps)
        await admin.namespace_policies.deduplication.set(EXACT, True)
        for flow in self._flows:
            if flow.shape.partitions:
                await admin.topics.create_partitioned(flow.topic, flow.shape.partitions)

    def _start_side_works(
        self,
        nursery: trio.Nursery,
        clients: dict[bool, geminga.Client],
        admin: geminga.admin.AdminClient,
    ) -> None:
        figures, stop, start = self._figures, self._publishing_ends, nursery.start_soon
        side_s = min(_SIDE_S, self._seconds / 6)
        shared = f"persistent://{NAMESPACE}/shared"
        start(flows.catch_up, clients[False], shared, figures, stop, side_s)
        start(flows.come_and_go, clients[True], admin, NAMESPACE, figures, stop)
        start(flows.compacted, clients[False], admin, NAMESPACE, figures, stop, side_s)
        start(flows.scrape, self._web, figures, stop, 15.0)

    async def _report(self, interval_s: float) -> None:
        began = trio.current_time()
        number = 0
        while True:
            number += 1
            await trio.sleep_until(began + number * interval_s)
            for flow in self._flows:
                flow.settle(trio.current_time(), PATIENCE_S)
            print(msgspec.json.encode(self._load()).decode(), flush=True)

    def _load(self) -> Load:
        figures = self._figures
        counts = Counter(figures.counts)
        for flow in self._flows:
            counts.update(flow.track.counts)
        made = Load(
            at_s=trio.current_time(),
            counts=dict(counts),
            errors=dict(figures.errors),
            publish_ms=spread(figures.publish_s),
            arrive_ms=spread(figures.arrive_s),
            rest_ms=spread(figures.rest_s),
        )
        figures.publish_s, figures.arrive_s, figures.rest_s = [], [], []
        return made


def main() -> None:
    """The program."""
    direct, proxy, web, rate, seconds, interval_s = sys.argv[1:]

    async def run() -> None:
        program = Program(direct, proxy, web, float(rate), float(seconds))
        await program.run(float(interval_s))

    trio.run(run)


if __name__ == "__main__":
    main()

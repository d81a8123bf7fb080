"""What a broker tells of its load, and when (spec CL-07; Apache's ModularLoadManagerImpl,
SimpleLoadManagerImpl and LoadReportUpdaterTask).

One task writes the broker's node: at the start, in each later session, when the load has changed by
more than `loadBalancerReportUpdateThresholdPercentage`, and after
`loadBalancerReportUpdateMaxIntervalMinutes`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import trio

from geminga_broker.cluster.registration import Registration
from geminga_broker.loadbalance.collect import BundleStatsCollector
from geminga_broker.loadbalance.model import (
    TimeAverageBrokerData,
    broker_average_path,
    broker_path,
    encode,
)
from geminga_broker.loadbalance.reports import (
    LocalBrokerData,
    Report,
    encode_report,
    report_change,
)
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.usage import HostUsage
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import (
    MetadataError,
    MetadataStore,
    SessionExpired,
    SessionPhase,
    ValueTooLarge,
)

_log = logging.getLogger(__name__)

COLLECT_S = 60.0
"""Between two passes over the topics (Apache's statsUpdateFrequencyInSecs), if no bundle came or
went.
"""
RETRY_S = 1.0
LEAVE_S = 5.0
"""How long a broker that stops waits for the store."""
KEPT_SHARE = 0.7
"""Of the bundles of a report that the store doesn't take."""


class LoadReporter:
    """Keeps this broker's node. Only this writes it."""

    def __init__(
        self,
        store: MetadataStore,
        collector: BundleStatsCollector,
        host: HostUsage,
        config: LoadBalanceConfig,
        base: LocalBrokerData,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`base` is what doesn't change: addresses, version, kinds of topics."""
        self.config = config
        self.host = host
        self.form: Callable[[LocalBrokerData], Report] = lambda report: report
        """The form in which it is written: the load manager's. May be replaced."""
        self.report = base
        """The load now; what others see may be older."""
        self._store = store
        self._collector = collector
        self._clock_ms = clock_ms
        self._written = base
        self._collected_s = -COLLECT_S
        self._too_large = False
        self._failing = False
        self._is_new = False
        """Whether it is to be written soon, whatever has changed."""
        self._node: Registration | None = None
        self._turning = trio.Lock()

    def reconfigure(self, config: LoadBalanceConfig) -> None:
        """Settings have changed, perhaps the class of the load manager."""
        self.config = config
        self.report = msgspec.structs.replace(
            self.report, load_manager_class_name=config.load_manager
        )
        self._is_new = True

    @asynccontextmanager
    async def registered(self, broker_id: str) -> AsyncIterator[None]:
        """Keep the node while the context is open. Raises MetadataError if it can't be made at
        first.
        """
        if self.config.enabled:
            self.host.sample()
        self.report = self.report.with_usage(self.host.usage)
        node = self._node = Registration(self._store, broker_path(broker_id))
        try:
            await self._write(node.register)
            if self.config.enabled:
                # Apache's `perf monitor-brokers` expects one of each broker.
                averages = encode(TimeAverageBrokerData())
                await self._store.put(broker_average_path(broker_id), averages)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run, node)
                nursery.start_soon(node.follow, broker_id, self._write_soon)
                nursery.start_soon(self._sample)
                yield
                nursery.cancel_scope.cancel()
        finally:
            self._node = None
            await node.remove()  # noqa: ASYNC102

    async def leave(self) -> None:
        """Remove the node for good, before the context is closed: nobody gives this broker a bundle
        any more (Apache's `disableBroker`). If the store doesn't answer, it goes with the session.
        """
        node, self._node = self._node, None
        if node is not None:
            with trio.move_on_after(LEAVE_S):
                async with self._turning:  # one that has begun may make the node anew
                    await node.remove()

    async def _run(self, node: Registration) -> None:
        """Until cancelled, or the store is closed."""
        with suppress(SessionExpired):
            while True:
                with trio.move_on_after(self.config.report_interval_ms_min / 1000):
                    await self._store.wait_change(node.epoch)
                await self._turn(node)

    def _write_soon(self) -> None:
        self._is_new = True

    async def _sample(self) -> None:
        while True:
            await trio.sleep(self.config.usage_check_minutes * 60)
            if self.config.enabled:
                self.host.sample()

    async def _turn(self, node: Registration) -> None:
        async with self._turning:
            if self._node is node:
                await self._keep(node)

    async def _keep(self, node: Registration) -> None:
        try:
            if not node.is_current:
                await self._write(node.register)
                _log.info("registered again: the metadata store's session was a new one")
            elif self.config.enabled or self._is_new:
                await self.refresh()
                if self._store.session.phase is SessionPhase.CONNECTED and self._is_due():
                    await self._write(node.update)
            self._failing = False
        except MetadataError as error:
            if not self._failing:
                self._failing = True
                _log.warning("the load report can't be written, tried again: %s", error)
            await trio.sleep(RETRY_S)

    async def refresh(self) -> LocalBrokerData:
        """Take the load of now, which others see when it is written next."""
        if not self.config.enabled:
            self.host.sample()  # nothing else does
        now_s = trio.current_time()
        owned = self._collector.owned()
        if now_s - self._collected_s >= COLLECT_S or owned != self.report.last_stats.keys():
            stats = await self._collector.collect()
            self._collected_s = now_s
            self.report = self.report.refreshed(self.host.usage, stats)
        else:
            self.report = self.report.with_usage(self.host.usage)
        return self.report

    def _is_due(self) -> bool:
        if self._is_new:
            return True
        age_ms = self._clock_ms() - self._written.last_update
        # A clock that was set back makes it due, too.
        if not 0 <= age_ms <= self.config.report_interval_minutes_max * 60_000:
            return True
        change = report_change(self._written, self.report, self.config.weights)
        return change > self.config.report_change_percent

    async def _write(self, put: Callable[[bytes], Awaitable[None]]) -> None:
        """Write the report, with fewer bundles if the store doesn't take all of them."""
        report = msgspec.structs.replace(self.report, last_update=self._clock_ms())
        while True:
            try:
                await put(encode_report(self.form(report)))
            except ValueTooLarge:
                if not report.last_stats:
                    raise
                report = _with_fewer_bundles(report)
                if not self._too_large:
                    self._too_large = True
                    _log.warning(
                        "the load report of %d bundles is too large for the metadata store: the "
                        "least loaded ones are left out",
                        self.report.num_bundles,
                    )
            else:
                break
        # What came and went while it was written stands in the next one.
        self._written = report
        self._is_new = False
        self.report = msgspec.structs.replace(
            self.report,
            last_update=report.last_update,
            last_bundle_gains=self.report.last_bundle_gains - report.last_bundle_gains,
            last_bundle_losses=self.report.last_bundle_losses - report.last_bundle_losses,
        )


def _with_fewer_bundles(report: LocalBrokerData) -> LocalBrokerData:
    """Its most loaded bundles; the sums stay those of all."""

    def load(bundle: str) -> tuple[float, float]:
        stats = report.last_stats[bundle]
        return stats.throughput, stats.rate

    kept = sorted(report.last_stats, key=load, reverse=True)
    kept = kept[: int(len(kept) * KEPT_SHARE)]
    return msgspec.structs.replace(
        report,
        last_stats={bundle: report.last_stats[bundle] for bundle in kept},
        bundles=set(kept),
        last_bundle_gains=set(),
        last_bundle_losses=set(),
    )

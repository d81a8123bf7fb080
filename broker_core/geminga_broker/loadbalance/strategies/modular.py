"""The modular load manager (Apache's ModularLoadManagerImpl)."""

from __future__ import annotations

import random
from collections.abc import Collection

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.placement import ModularPlacement
from geminga_broker.loadbalance.reports import LocalBrokerData, Report
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.shedding import Move, Shedding
from geminga_broker.loadbalance.store.history import LoadHistory


class ModularStrategy(ModularPlacement):
    """Placement and shedding over the same load. Implements `Strategy`."""

    centralized = True
    splits_own = False

    def __init__(
        self, load: LoadData, config: LoadBalanceConfig, chance: random.Random | None = None
    ) -> None:
        super().__init__(load, config, chance=chance)
        self._shedding = Shedding(self)
        self.failed = self._shedding.failed

    def brokers_changed(self, active: Collection[str]) -> None:
        """Brokers came or went."""
        super().brokers_changed(active)
        self._shedding.brokers_changed(active)

    def reports_read(self, now_ms: int) -> None:
        """Nothing more is made of reports than `LoadData` does."""

    def plan(self, active: Collection[str], now_s: float, now_ms: int) -> list[Move]:
        """See `Shedding.plan`."""
        return self._shedding.plan(active, now_s, now_ms)

    def form(self, report: LocalBrokerData) -> Report:
        """A report is written as it is."""
        return report

    def metrics(self, own_id: str) -> dict[str, float]:
        """None."""
        return {}

    async def recall(self, history: LoadHistory) -> None:
        """Each bundle's averages are read when it is seen first."""

    async def write(self, history: LoadHistory) -> None:
        """Averages of brokers and of their most loaded bundles."""
        await history.write(self.load, self.config.averages_written_per_broker)

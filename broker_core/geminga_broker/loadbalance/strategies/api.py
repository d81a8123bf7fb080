"""What a load manager decides."""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from geminga_broker.loadbalance.candidates import Rules
from geminga_broker.loadbalance.reports import LocalBrokerData, Report
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.shedding import Move
from geminga_broker.loadbalance.store.history import LoadHistory


class Strategy(Protocol):
    """Decisions on `LoadData`, which the caller keeps up to date, as `rules`."""

    rules: Rules

    @property
    def config(self) -> LoadBalanceConfig:
        """The settings of now."""

    @property
    def centralized(self) -> bool:
        """Whether only the leader chooses."""

    @property
    def splits_own(self) -> bool:
        """Whether each broker has its own bundles split; else the leader has all of them."""

    def reconfigure(self, config: LoadBalanceConfig) -> None:
        """Settings have changed, but for the class of the load manager."""

    def choose(self, bundle: str, active: Iterable[str], now_s: float) -> str | None:
        """The broker for a bundle without an owner, which is remembered."""

    def permitted(self, bundle: str, active: Iterable[str]) -> list[str]:
        """The brokers that policies allow."""

    def brokers_changed(self, active: Collection[str]) -> None:
        """Brokers came or went."""

    def reports_read(self, now_ms: int) -> None:
        """`LoadData` has what the brokers report now."""

    def plan(self, active: Collection[str], now_s: float, now_ms: int) -> list[Move]:
        """What is to be moved, which counts as done."""

    def failed(self, move: Move) -> None:
        """It was not moved."""

    def form(self, report: LocalBrokerData) -> Report:
        """The report as this load manager writes it."""

    def metrics(self, own_id: str) -> dict[str, float]:
        """Figures of this broker that only this load manager has, by name without `pulsar_`."""

    async def recall(self, history: LoadHistory) -> None:
        """Read what an earlier leader has written of all bundles together. Raises MetadataError."""

    async def write(self, history: LoadHistory) -> None:
        """Write what a later leader shall know. Raises MetadataError."""

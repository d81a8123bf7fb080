"""The load of all brokers as one of them sees it: their reports, read from the metadata store
(spec CL-07; Apache's ModularLoadManagerImpl.updateAll).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import trio

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import BROKERS_PATH, broker_path
from geminga_broker.loadbalance.reports import LocalBrokerData, as_local, decode_report
from geminga_broker.loadbalance.store.history import LoadHistory
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import MetadataStore, Node
from geminga_runtime.single_flight import SingleFlight

_log = logging.getLogger(__name__)

SAMPLE_S = 60.0
"""A broker's load enters the averages with each report, and after this time without one: so what
has not changed since counts, too.
"""

_Mark = tuple[int, int, int]
"""Tells two values of a node apart: when it was made and changed, and its version."""


class LoadView:
    """Keeps `load` in step with the brokers' nodes."""

    def __init__(
        self,
        store: MetadataStore,
        history: LoadHistory,
        load: LoadData,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.load = load
        self.active: list[str] = []
        """Ids of the registered brokers, when it was looked last."""
        self.refreshed_s = float("-inf")
        """When that was, in the loop's time."""
        self._store = store
        self._history = history
        self._clock_ms = clock_ms
        self._marks: dict[str, _Mark] = {}
        self._sampled_s: dict[str, float] = {}
        self._refused: dict[str, _Mark] = {}
        """Reports that can't be read and were logged."""
        self._flight: SingleFlight[str, list[str]] = SingleFlight()

    async def refresh(self) -> list[str]:
        """Take all reports that are new; returns the brokers that are gone since the last time.
        One call at a time, which others join. Raises MetadataError.
        """
        return await self._flight.run("refresh", self._refresh)

    async def _refresh(self) -> list[str]:
        active = list(await self._store.children(BROKERS_PATH))
        gone = self.load.keep_only(set(active))
        for known in (self._marks, self._sampled_s, self._refused):
            for broker_id in known.keys() - set(active):
                del known[broker_id]
        for broker_id in active:
            node = await self._store.get(broker_path(broker_id))
            if node is not None:
                await self._take(broker_id, node)
                # A report of thousands of bundles takes milliseconds.
                await trio.lowlevel.checkpoint()
        self.active = active
        self.refreshed_s = trio.current_time()
        return gone

    async def _take(self, broker_id: str, node: Node) -> None:
        mark = (node.stat.ctime_ms, node.stat.mtime_ms, node.stat.version)
        now_s = trio.current_time()
        is_new = self._marks.get(broker_id) != mark
        if not is_new and now_s - self._sampled_s.get(broker_id, now_s) < SAMPLE_S:
            return
        if self._refused.get(broker_id) == mark:
            return
        try:
            report = as_local(decode_report(node.value))
        except (ValueError, RecursionError) as error:
            self._refused[broker_id] = mark
            _log.warning("the load report of broker %s can't be read: %s", broker_id, error)
            return
        self._refused.pop(broker_id, None)
        await self._history.recall(self.load, report.last_stats)
        self._marks[broker_id] = mark
        self._sampled_s[broker_id] = now_s
        self.load.report(broker_id, self._dated(report, is_new=is_new), now_s)

    def _dated(self, report: LocalBrokerData, *, is_new: bool) -> LocalBrokerData:
        """An old report once more counts as one of now."""
        if is_new and report.last_update:
            return report
        return msgspec.structs.replace(report, last_update=self._clock_ms())

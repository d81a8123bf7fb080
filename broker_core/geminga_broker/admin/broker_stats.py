"""`/admin/v2/broker-stats`: figures of this broker (spec OP-03; Apache's `BrokerStatsBase`)."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections import defaultdict
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import answers, rest
from geminga_broker.cluster.records import JsonObject
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import MODULAR
from geminga_broker.log.state import LogState
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import TopicStats, json_in_turns
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import Turns
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.process import process_age_s

_TOPIC_FIELDS = [
    "averageMsgSize",
    "msgRateIn",
    "msgRateOut",
    "msgThroughputIn",
    "msgThroughputOut",
    "storageSize",
    "backlogSize",
]
_COUNTERS = {
    "msgInCount": "msgInCounter",
    "bytesInCount": "bytesInCounter",
    "msgOutCount": "msgOutCounter",
    "bytesOutCount": "bytesOutCounter",
}
_SUBSCRIPTION_FIELDS = [
    "consumers",
    "msgBacklog",
    "msgRateExpired",
    "msgRateOut",
    "messageAckRate",
    "msgThroughputOut",
    "msgRateRedeliver",
    "type",
    "filterProcessedMsgCount",
    "filterAcceptedMsgCount",
    "filterRejectedMsgCount",
    "filterRescheduledMsgCount",
    "blockedSubscriptionOnUnackedMsgs",
    "unackedMessages",
]
_WRAPPER = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerWrapper"


class _BriefStats(TopicStats, rename="camel"):
    """A topic, with a part of its statistics."""

    producer_count: int = 0
    msg_in_count: int = 0
    bytes_in_count: int = 0
    msg_out_count: int = 0
    bytes_out_count: int = 0


_Topics = dict[str, dict[str, dict[str, dict[str, _BriefStats]]]]
"""By namespace, bundle, domain and name."""


class _ShownReport(LocalBrokerData, tag_field="loadReportType", tag="LocalBrokerData"):
    """A broker's report with what Apache's class derives."""

    max_resource_usage: float = 0.0


def routes(service: BrokerService) -> list[Route]:
    """All routes of the family."""

    async def topics(_request: Request) -> Response:
        return rest.ok(await topics_by_bundle(service), _Topics)

    async def metrics(_request: Request) -> Response:
        return rest.ok(await metrics_by_namespace(service), list[answers.Figures])

    async def load_report(_request: Request) -> Response:
        report = await service.load_manager.reporter.refresh()
        found: JsonObject = msgspec.to_builtins(report)
        shown = {name: value for name, value in found.items() if value is not None}
        return rest.ok(shown | {"maxResourceUsage": report.max_usage()}, _ShownReport)

    async def allocator(request: Request) -> Response:
        name = rest.parameter(request, "allocator")
        if name not in ("default", "ml-cache"):
            raise rest.RestError(406, f"Invalid allocator name : {name}")
        used = service.log_cache.size_bytes if name == "ml-cache" else _resident_bytes()
        return rest.ok(_allocator_stats(used), answers.AllocatorStats)

    async def bookie_operations(_request: Request) -> Response:
        return rest.ok(await pending_operations(service), answers.PendingOperations)

    async def beans(_request: Request) -> Response:
        return rest.ok(process_figures(), list[answers.Figures])

    async def availability(_request: Request) -> Response:
        manager = service.config.load_balance.load_manager
        shown = _WRAPPER if manager == MODULAR else manager
        raise rest.RestError(409, f"{shown} does not support this operation")

    base = "/admin/v2/broker-stats"
    return [
        rest.route("GET", base + "/topics", topics),
        rest.route("GET", base + "/metrics", metrics),
        rest.route("GET", base + "/load-report", load_report),
        rest.route("GET", base + "/bookieops", bookie_operations),
        rest.route("GET", base + "/mbeans", beans),
        rest.route("GET", base + "/allocator-stats/{allocator}", allocator),
        rest.route(
            "GET", base + "/broker-resource-availability/{tenant}/{namespace}", availability
        ),
    ]


_OPERATIONS = [
    f"{of}Ledger{what}Op"
    for of in ("data", "cursor")
    for what in ("Open", "Close", "Create", "Delete")
]


async def pending_operations(service: BrokerService) -> answers.PendingOperations:
    """Calls to bookies that the logs of loaded topics wait for, by namespace and topic (Apache's
    `PendingBookieOpsStats`). Those of cursors aren't told: 0.
    """
    found: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    turns = Turns()
    for key, topic in list(service.topics.loaded.items()):
        if isinstance(topic, PersistentTopic):
            counts = dict.fromkeys(_OPERATIONS, 0)
            if isinstance(topic.log, TopicLog):
                context = topic.log.context
                counts["dataLedgerCloseOp"] = int(context.unclosed is not None)
                is_made = context.state is LogState.ROLLING and context.unclosed is None
                counts["dataLedgerCreateOp"] = int(is_made)
            found[TopicName.parse(key).namespace][key] = counts
        await turns.spend()
    return {name: found[name] for name in sorted(found)}


def process_figures() -> list[answers.Figures]:
    """What this process can tell of the beans that a Java machine has, under their names (Apache's
    `MBeanStatsGenerator`).
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    uptime_ms = int(process_age_s() * 1000)
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    beans: dict[str, dict[str, float | str]] = {
        "OperatingSystem": {
            "AvailableProcessors": os.cpu_count() or 1,
            "MaxFileDescriptorCount": files_max,
            "OpenFileDescriptorCount": _open_files(),
            "ProcessCpuTime": int((used.ru_utime + used.ru_stime) * 1e9),
            "SystemLoadAverage": os.getloadavg()[0],
        },
        "Runtime": {
            "Name": f"{os.getpid()}@{socket.gethostname()}",
            "StartTime": wall_clock_ms() - uptime_ms,
            "Uptime": uptime_ms,
        },
        "Threading": {"ThreadCount": threading.active_count()},
    }
    return [
        {"metrics": figures, "dimensions": {"MBean": f"java.lang:type={name}"}}
        for name, figures in beans.items()
    ]


def _open_files() -> int:
    """-1 where the system can't tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1


def _resident_bytes() -> int:
    """The most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _allocator_stats(used_bytes: int) -> answers.AllocatorStats:
    """Apache's `AllocatorStats`: Python's memory has no arenas."""
    return {
        "numDirectArenas": 0,
        "numHeapArenas": 0,
        "numThreadLocalCaches": 0,
        "normalCacheSize": 0,
        "smallCacheSize": 0,
        "usedDirectMemory": 0,
        "usedHeapMemory": used_bytes,
        "directArenas": [],
        "heapArenas": [],
    }


async def topics_by_bundle(service: BrokerService) -> JsonObject:
    """Statistics of all loaded topics: by namespace, bundle, domain and name, as Apache's
    `PulsarStats` writes them.
    """
    found: dict[str, dict[str, dict[str, JsonObject]]] = defaultdict(lambda: defaultdict(dict))
    turns = Turns()
    for key, topic in list(service.topics.loaded.items()):
        name = TopicName.parse(key)
        bundle = (await service.namespaces.bundle_of(name)).range
        stats = await json_in_turns(topic.stats_steps(), turns)
        place = found[name.namespace][bundle].setdefault(name.domain, {})
        place[key] = _of_topic(stats)
        await turns.spend()
    return cast(JsonObject, found)


def _of_topic(stats: JsonObject) -> JsonObject:
    publishers = cast(list[object], stats.get("publishers", []))
    subscriptions = cast(dict[str, JsonObject], stats.get("subscriptions", {}))
    return {
        "publishers": publishers,
        "replication": stats.get("replication", {}),
        "subscriptions": {
            name: {field: each[field] for field in _SUBSCRIPTION_FIELDS if field in each}
            for name, each in subscriptions.items()
        },
        "producerCount": len(publishers),
        **{field: stats[field] for field in _TOPIC_FIELDS if field in stats},
        **{name: stats[field] for name, field in _COUNTERS.items() if field in stats},
    }


async def metrics_by_namespace(service: BrokerService) -> list[answers.Figures]:
    """Sums of the loaded topics of each namespace (Apache's `NamespaceStats`)."""
    sums: dict[str, dict[str, float]] = {}
    turns = Turns()
    for key, topic in list(service.topics.loaded.items()):
        stats = await json_in_turns(topic.stats_steps(), turns)
        namespace = TopicName.parse(key).namespace
        known = sums.setdefault(namespace, dict.fromkeys(_METRICS, 0))
        subscriptions = cast(dict[str, JsonObject], stats.get("subscriptions", {}))
        consumers = [each.get("consumers") for each in subscriptions.values()]
        backlogs = (cast(int, each.get("msgBacklog", 0)) for each in subscriptions.values())
        for name, value in (
            ("brk_in_rate", stats.get("msgRateIn")),
            ("brk_in_tp_rate", stats.get("msgThroughputIn")),
            ("brk_out_rate", stats.get("msgRateOut")),
            ("brk_out_tp_rate", stats.get("msgThroughputOut")),
            ("brk_storage_size", stats.get("storageSize")),
            ("brk_no_of_producers", len(cast(list[object], stats.get("publishers", [])))),
            ("brk_no_of_subscriptions", len(subscriptions)),
            ("brk_no_of_consumers", sum(len(cast(list[object], each or [])) for each in consumers)),
            ("brk_msg_backlog", sum(backlogs)),
        ):
            known[name] += cast(float, value or 0)
        await turns.spend(1 + len(subscriptions))
    return [
        {"metrics": figures, "dimensions": {"namespace": namespace}}
        for namespace, figures in sorted(sums.items())
    ]


_METRICS = (
    "brk_in_rate",
    "brk_in_tp_rate",
    "brk_out_rate",
    "brk_out_tp_rate",
    "brk_storage_size",
    "brk_no_of_producers",
    "brk_no_of_subscriptions",
    "brk_no_of_replicators",
    "brk_no_of_consumers",
    "brk_msg_backlog",
    "brk_replication_backlog",
    "brk_max_replication_delay_second",
)

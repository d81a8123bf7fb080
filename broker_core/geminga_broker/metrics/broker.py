"""Series of the broker itself: connections, lookups, loads of topics, authentication (spec OP-05;
Apache's BrokerOperabilityMetrics, BrokerService, NamespaceService, AuthenticationMetrics).
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from geminga_broker.metrics.counts import LoadCounts, SchemaCounts
from geminga_broker.metrics.exposition import Exposition
from geminga_broker.metrics.pace import Pace
from geminga_broker.service import BrokerService
from geminga_broker.session.connections import Connections
from geminga_runtime.auth.service import Authenticator
from geminga_runtime.metrics.buckets import Buckets
from geminga_runtime.metrics.labels import labels
from geminga_runtime.metrics.store_times import StoreTimes

_PUBLISHES = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
_LOOKUPS = (0.5, 0.99, 0.999, 1.0)
_SCHEMAS = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
SCHEMA_UNITS = 4
"""Of a turn: the quantiles of a namespace are searched in some thousand buckets."""

_LOADS = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999)
_LOAD_NAMES = (
    *("median", "75percentile", "95percentile", "99_percentile", "99_9_percentile"),
    "99_99_percentile",
)


async def add_broker(text: Exposition, service: BrokerService, pace: Pace) -> None:
    """All of them."""
    pairs = [("cluster", service.config.network.cluster_name)]
    where, now_s = labels(pairs), perf_counter()
    broker = service.addresses.broker_id.rpartition(":")[0]

    def of_broker(metric: str) -> str:
        return labels([*pairs, ("broker", broker), ("metric", metric)])

    _connections(text, of_broker("broker_connection"), service.connections)
    text.add("pulsar_broker_throttled_connections", where, service.connections.held_back)
    lookups, loads = service.lookup.counts, service.topics.load_counts
    text.summary("pulsar_broker_lookup", pairs, lookups.times, _LOOKUPS, now_s)
    for name, count in (
        ("pulsar_broker_lookup_answers_total", lookups.answers),
        ("pulsar_broker_lookup_redirects_total", lookups.redirects),
        ("pulsar_broker_lookup_failures_total", lookups.failures),
        ("topic_load_failed_total", loads.failures),
    ):
        text.add(name, where, count, "counter")
    text.add("pulsar_broker_lookup_pending_requests", where, service.lookup.running)
    text.add("pulsar_broker_topic_load_pending_requests", where, service.topics.loading)
    text.summary("pulsar_topic_load_times", pairs, loads.times, _LOADS, now_s)
    _loads(text, of_broker("pulsar_topic_load_times"), loads, now_s)
    choices = service.load_manager.choices
    text.summary("pulsar_broker_load_manager_bundle_assigment", pairs, choices, _LOOKUPS, now_s)
    text.add("pulsar_health", of_broker("broker_health"), service.health)
    publishes = service.log_cache.publishes
    text.summary("pulsar_broker_publish_latency", pairs, publishes, _PUBLISHES, now_s)
    checks = service.maintenance.quota_checks
    _histogram(text, "pulsar_storage_backlog_quota_check_duration_seconds", pairs, checks)
    if service.request_limit is not None:
        rejected = service.request_limit.rejected
        text.add("pulsar_broker_http_rejected_requests_total", where, rejected, "counter")
    add_stores(text, pairs, service.store_times)
    add_authentication(text, pairs, service.authenticator)
    for namespace, schemas in sorted(service.schemas.registry.meter.namespaces.items()):
        _schemas(text, [*pairs, ("namespace", namespace)], schemas, now_s)
        await pace.spend(SCHEMA_UNITS)


def _schemas(
    text: Exposition, pairs: list[tuple[str, str]], schemas: SchemaCounts, now_s: float
) -> None:
    for call, times in schemas.times.items():  # empty ones cost no search
        text.summary(f"pulsar_schema_{call}_ops_latency", pairs, times, _SCHEMAS, now_s)
    where = labels(pairs)
    for call, count in schemas.failures.items():
        text.add(f"pulsar_schema_{call}_ops_failed_total", where, count, "counter")
    text.add("pulsar_schema_compatible_total", where, schemas.compatible, "counter")
    text.add("pulsar_schema_incompatible_total", where, schemas.incompatible, "counter")


def _connections(text: Exposition, where: str, connections: Connections) -> None:
    for name, value in (
        ("pulsar_connection_created_total_count", connections.created),
        ("pulsar_connection_create_success_count", connections.accepted),
        ("pulsar_connection_create_fail_count", connections.refused),
        ("pulsar_connection_closed_total_count", connections.closed),
        ("pulsar_active_connections", len(connections.sessions)),
    ):
        text.add(name, where, value)


def _loads(text: Exposition, where: str, loads: LoadCounts, now_s: float) -> None:
    """The times of `pulsar_topic_load_times` once more, as gauges."""
    times = loads.times
    mean_ms = times.sum / times.count * 1000 if times.count else "NaN"
    text.add_text("pulsar_topic_load_time_mean_ms", where, str(mean_ms))
    for name, value in zip(_LOAD_NAMES, times.quantiles(now_s, _LOADS), strict=True):
        number = "NaN" if value != value else str(round(value * 1000, 6))
        text.add_text(f"pulsar_topic_load_time_{name}_ms", where, number)
    text.add("pulsar_topic_load_rate_s", where, times.count)
    text.add("pulsar_topic_load_failed_count", where, loads.failures)


def _histogram(
    text: Exposition, metric: str, pairs: list[tuple[str, str]], values: Buckets
) -> None:
    rows, where = text.rows(metric, "histogram"), labels(pairs)
    for end, count in values.up_to():
        rows.append(f"{metric}_bucket{labels([*pairs, ('le', end)])} {count}")
    rows.append(f"{metric}_count{where} {sum(values.counts)}")
    rows.append(f"{metric}_sum{where} {round(values.sum, 6)}")


def add_stores(
    text: Exposition, cluster: list[tuple[str, str]], stores: Sequence[StoreTimes]
) -> None:
    """Calls of the metadata stores, by store (Apache's MetadataStoreStats)."""
    for store in stores:
        pairs = [*cluster, ("name", store.name)]
        for status, calls in (("success", store.succeeded), ("fail", store.failed)):
            for call, times in calls.items():
                of_call = [*pairs, ("type", call), ("status", status)]
                _histogram(text, "pulsar_metadata_store_ops_latency_ms", of_call, times)
        metric = "pulsar_metadata_store_put_bytes_total"
        text.add(metric, labels(pairs), store.put_bytes, "counter")


def add_authentication(
    text: Exposition, cluster: list[tuple[str, str]], authenticator: Authenticator | None
) -> None:
    """Successful and failed authentications, by provider and method."""
    if authenticator is None:
        return
    for (provider, method), count in sorted(authenticator.successes.items()):
        pairs = [*cluster, ("provider_name", provider), ("auth_method", method)]
        text.add("pulsar_authentication_success_total", labels(pairs), count, "counter")
    for (provider, method, reason), count in sorted(authenticator.failures.items()):
        pairs = [*cluster, ("provider_name", provider), ("auth_method", method)]
        where = labels([*pairs, ("reason", reason)])
        text.add("pulsar_authentication_failures_total", where, count, "counter")
    _histogram(text, "pulsar_expiring_token_minutes", cluster, authenticator.expiring_minutes)
    if expired := authenticator.expired_tokens:
        text.add("pulsar_expired_token_total", labels(cluster), expired, "counter")

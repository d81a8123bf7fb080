"""Series of the broker itself: connections, lookups, loads of topics, authentication (spec OP-05;
Apache's BrokerOperabilityMetrics, BrokerService, NamespaceService, AuthenticationMetrics).
"""

from __future__ import annotations

from itertools import accumulate
from time import perf_counter

from geminga_broker.metrics.counts import CHECK_BOUNDS_S, CheckTimes
from geminga_broker.metrics.exposition import Exposition, labels
from geminga_broker.service import BrokerService
from geminga_runtime.auth.service import Authenticator

_PUBLISHES = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
_LOOKUPS = (0.5, 0.99, 0.999, 1.0)
_LOADS = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999)


def add_broker(text: Exposition, service: BrokerService) -> None:
    """All of them."""
    pairs = [("cluster", service.config.network.cluster_name)]
    where, now_s = labels(pairs), perf_counter()
    _connections(text, pairs, service)
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
    publishes = service.log_cache.publishes
    text.summary("pulsar_broker_publish_latency", pairs, publishes, _PUBLISHES, now_s)
    checks = service.maintenance.quota_checks
    _histogram(text, "pulsar_storage_backlog_quota_check_duration_seconds", pairs, checks)
    _authentication(text, pairs, service.authenticator)


def _connections(text: Exposition, pairs: list[tuple[str, str]], service: BrokerService) -> None:
    connections = service.connections
    broker = service.addresses.broker_id.rpartition(":")[0]
    where = labels([*pairs, ("broker", broker), ("metric", "broker_connection")])
    for name, value in (
        ("pulsar_connection_created_total_count", connections.created),
        ("pulsar_connection_create_success_count", connections.accepted),
        ("pulsar_connection_create_fail_count", connections.refused),
        ("pulsar_connection_closed_total_count", connections.closed),
        ("pulsar_active_connections", len(connections.sessions)),
    ):
        text.add(name, where, value)
    text.add("pulsar_broker_throttled_connections", labels(pairs), connections.held_back)


def _histogram(
    text: Exposition, metric: str, pairs: list[tuple[str, str]], times: CheckTimes
) -> None:
    rows, where = text.rows(metric, "histogram"), labels(pairs)
    ends = [*map(str, CHECK_BOUNDS_S), "+Inf"]
    counts = list(accumulate(times.buckets))
    for end, count in zip(ends, counts, strict=True):
        rows.append(f"{metric}_bucket{labels([*pairs, ('le', end)])} {count}")
    rows.append(f"{metric}_count{where} {counts[-1]}")
    rows.append(f"{metric}_sum{where} {round(times.sum_s, 6)}")


def _authentication(
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
        if reason == "expired_token":
            text.add("pulsar_expired_token_total", labels(cluster), count, "counter")

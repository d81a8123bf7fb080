"""What parts of a broker count for `/metrics` (spec OP-05). Loop only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from geminga_broker.errors import BrokerError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime.metrics.distribution import Distribution
from geminga_runtime.observing.slow import SlowOperations

_log = logging.getLogger(__name__)

CHECK_BOUNDS_S = (5.0, 10.0, 30.0, 60.0, 300.0)


class LookupCounts:
    """Lookups of topics, over the binary protocol and HTTP (Apache's NamespaceService)."""

    def __init__(self) -> None:
        self.times = Distribution()
        """Of those that were answered, s."""
        self.answers = 0
        """Without redirects."""
        self.redirects = 0
        self.failures = 0

    def answered(self, took_s: float, *, redirect: bool) -> None:
        """One has found a broker."""
        self.times.add(took_s)
        if redirect:
            self.redirects += 1
        else:
            self.answers += 1


class LoadCounts:
    """Loads of topics (Apache's BrokerOperabilityMetrics)."""

    def __init__(self) -> None:
        self.times = Distribution()
        """Of those that succeeded, s."""
        self.failures = 0
        self._slow = SlowOperations(_log)

    def loaded(self, topic: str, took_s: float) -> None:
        """A topic was loaded in so many seconds."""
        self.times.add(took_s)
        self._slow.ended(took_s, "topic=%s was loaded", topic)

    def failed(self, error: Exception) -> None:
        """A load has ended with this error. That the topic is missing is an answer, no failure."""
        if not (isinstance(error, BrokerError) and error.code == ServerError.TopicNotFound):
            self.failures += 1


SCHEMA_NAMESPACES_MAX = 1000
"""Namespaces whose schemas are counted; the one whose last call is longest ago is forgotten for a
further one.
"""

SCHEMA_CALLS = ("get", "put", "del")


class SchemaCounts:
    """Calls for the schemas of one namespace (Apache's SchemaRegistryStats)."""

    def __init__(self) -> None:
        self.times = {call: Distribution() for call in SCHEMA_CALLS}
        """Of those that succeeded, s."""
        self.failures = dict.fromkeys(SCHEMA_CALLS, 0)
        self.compatible = self.incompatible = 0

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Count one call, which may fail. One that is cancelled has neither failed nor passed."""
        began_s = perf_counter()
        try:
            yield
        except Exception:
            self.failures[call] += 1
            raise
        self.times[call].add(perf_counter() - began_s)


class SchemaMeter:
    """Calls for schemas, by namespace."""

    def __init__(self) -> None:
        self.namespaces: dict[str, SchemaCounts] = {}

    def of(self, schema_id: str) -> SchemaCounts:
        """Of the namespace of this schema: `tenant/namespace/topic`."""
        namespace = schema_id.rpartition("/")[0]
        found = self.namespaces.pop(namespace, None) or SchemaCounts()
        if len(self.namespaces) >= SCHEMA_NAMESPACES_MAX:
            del self.namespaces[next(iter(self.namespaces))]
        self.namespaces[namespace] = found  # the latest is last
        return found

"""Memory, CPU, files and garbage collection of this process, as usual in Python servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Figure(NamedTuple):
    """One sample of `process_*` or `python_gc_*`."""

    name: str
    labels: Mapping[str, str]
    value: float
    kind: str
    """As behind `# TYPE`."""


@cache
def _registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def process_figures() -> Iterator[Figure]:
    """All of now, those of one name together; the library is imported at the first scrape."""
    for family in _registry().collect():
        for sample in family.samples:
            yield Figure(sample.name, sample.labels, sample.value, family.type)

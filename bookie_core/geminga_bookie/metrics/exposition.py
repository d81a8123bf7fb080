"""Metrics as text for Prometheus, as Apache's PrometheusTextFormat writes them (spec BK-13)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from geminga_runtime.metrics.distribution import QUANTILES, Distribution, Outcomes
from geminga_runtime.metrics.labels import labels as label_text

MS = 1000.0
"""Apache's times are in milliseconds."""

Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Page:
    """Collects families; each has its type once, whatever order its samples come in."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._families: dict[str, tuple[str, list[str]]] = {}

    def _samples(self, name: str, kind: str) -> list[str]:
        return self._families.setdefault(name, (kind, []))[1]

    def gauge(self, name: str, value: float, labels: Labels = NO_LABELS) -> None:
        """A value of this moment."""
        self._samples(name, "gauge").append(f"{name}{_labels(labels)} {_number(value)}")

    def counter(
        self, name: str, value: float, labels: Labels = NO_LABELS, *, suffix: str = ""
    ) -> None:
        """A count since the start."""
        self._samples(name, "counter").append(f"{name}{suffix}{_labels(labels)} {_number(value)}")

    def summary(
        self, name: str, values: Outcomes, labels: Labels = NO_LABELS, *, factor: float = 1.0
    ) -> None:
        """Distributions by success; `factor` gives their unit."""
        samples = self._samples(name, "summary")
        for succeeded, distribution in (("false", values.failed), ("true", values.succeeded)):
            samples += self._lines(name, succeeded, distribution, labels, factor)

    def times(self, name: str, values: Outcomes, labels: Labels = NO_LABELS) -> None:
        """Distributions of seconds, written as milliseconds."""
        self.summary(name, values, labels, factor=MS)

    def _lines(
        self, name: str, succeeded: str, values: Distribution, labels: Labels, factor: float
    ) -> Iterator[str]:
        mine = {"success": succeeded, **labels}
        for quantile, value in zip(QUANTILES, values.quantiles(self._now_s), strict=True):
            marked = _labels({"success": succeeded, "quantile": str(quantile), **labels})
            yield f"{name}{marked} {_number(value * factor)}"
        yield f"{name}_count{_labels(mine)} {values.count}"
        yield f"{name}_sum{_labels(mine)} {_number(values.sum * factor)}"

    def text(self) -> str:
        """The page."""
        lines: list[str] = []
        for name, (kind, samples) in self._families.items():
            lines.append(f"# TYPE {name} {kind}")
            lines += samples
        return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    return label_text(labels.items())


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    return str(round(value, 6))

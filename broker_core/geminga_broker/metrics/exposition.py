"""The text that Prometheus scrapes: each metric's lines together, with its type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from geminga_runtime.metrics.distribution import Distribution

Number = int | float | bool

CHUNK_BYTES = 256 * 1024
"""About the size of the parts in which a page is kept and sent."""

BACKSLASH = "\\"


def escape(value: str) -> str:
    """A label's value, escaped for the text format."""
    if BACKSLASH in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def labels(pairs: Iterable[tuple[str, str]]) -> str:
    """`{a="b",c="d"}`, or nothing for no labels."""
    inner = ",".join([f'{name}="{escape(value)}"' for name, value in pairs])
    return f"{{{inner}}}" if inner else ""


class _Family:
    """Samples of one metric, the older ones packed."""

    __slots__ = ("kind", "lines", "packed")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lines: list[str] = []
        self.packed: list[bytes] = []

    def pack(self) -> None:
        if self.lines:
            self.lines.append("")
            self.packed.append("\n".join(self.lines).encode())
            self.lines.clear()


class Exposition:
    """Collects samples by metric and renders them; one for each scrape."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def rows(self, metric: str, kind: str = "gauge") -> list[str]:
        """Lines of the metric's samples, to which more are added. It stays the same list."""
        family = self._families.get(metric)
        if family is None:
            family = self._families[metric] = _Family(kind)
        return family.lines

    def add(self, metric: str, label_text: str, value: Number, kind: str = "gauge") -> None:
        """One sample; `label_text` comes from `labels`."""
        number = int(value) if isinstance(value, bool) else value
        self.rows(metric, kind).append(f"{metric}{label_text} {number}")

    def add_text(self, metric: str, label_text: str, value: str) -> None:
        """One sample of a gauge whose value is written already."""
        self.rows(metric).append(f"{metric}{label_text} {value}")

    def summary(
        self,
        metric: str,
        pairs: Sequence[tuple[str, str]],
        values: Distribution,
        quantiles: Sequence[float],
        now_s: float,
    ) -> None:
        """A distribution of seconds, in milliseconds."""
        rows = self.rows(metric, "summary")
        found = values.quantiles(now_s, quantiles)
        for quantile, value in zip(quantiles, found, strict=True):
            marked = labels([*pairs, ("quantile", str(quantile))])
            number = "NaN" if value != value else round(value * 1000, 6)
            rows.append(f"{metric}{marked} {number}")
        rows.append(f"{metric}_count{labels(pairs)} {values.count}")
        rows.append(f"{metric}_sum{labels(pairs)} {round(values.sum * 1000, 6)}")

    def pack(self) -> None:
        """Encode what was added: a large page is made a part at a time."""
        for family in self._families.values():
            family.pack()

    def parts(self, *, forget: bool = False) -> Iterator[bytes]:
        """The whole text, in order. With `forget` what was yielded isn't kept."""
        self.pack()
        for metric, family in self._families.items():
            if family.packed:
                yield f"# TYPE {metric} {family.kind}\n".encode()
                yield from family.packed
                if forget:
                    family.packed = []

    def chunks(self) -> Iterator[bytes]:
        """The whole text, once, in parts of about CHUNK_BYTES, each joined when it is asked for."""
        waiting: list[bytes] = []
        size = 0
        for part in self.parts(forget=True):
            waiting.append(part)
            size += len(part)
            if size >= CHUNK_BYTES:
                yield b"".join(waiting)
                waiting.clear()
                size = 0
        if waiting:
            yield b"".join(waiting)

    def render(self) -> str:
        """The whole text, ended by a newline."""
        return b"".join(self.parts()).decode()

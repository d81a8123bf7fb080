"""The text that Prometheus scrapes: each metric's lines together, with its type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from geminga_runtime.metrics.distribution import Distribution
from geminga_runtime.metrics.labels import labels

Number = int | float | bool

CHUNK_BYTES = 50 * 1024
"""At least so large are the parts in which a page is sent, but for the last."""
BLOCK_ROWS = 64
"""So many samples of a metric are made at a time."""

Row = Sequence[object]
_WORDS = {"True": "1", "False": "0", "None": ""}
"""What isn't told as Python writes it; a series without a value has no line."""


class _Block:
    """Samples of some metrics that are labelled alike: the labels once, and the values of each."""

    __slots__ = ("_columns", "_labels")

    def __init__(self, labels_of: Sequence[str], rows: Sequence[Row]) -> None:
        self._labels = labels_of
        first = rows[0]
        if len(set(map(id, rows))) == 1:
            self._columns: list[str | Sequence[str]] = [_text(value) for value in first]
        else:
            # Rows are not kept: so many tuples would have the collector look at all of them.
            self._columns = [_column(values) for values in zip(*rows, strict=True)]

    def text(self, metric: str, place: int) -> str:
        """The lines of one metric, whose values stand at that place."""
        value, found = self._columns[place], self._labels
        if not isinstance(value, str):
            pairs = zip(found, value, strict=True)
            return "".join([f"{metric}{where} {each}\n" for where, each in pairs if each])
        # Nothing is made for a line: most are of what is idle.
        between = f" {value}\n{metric}"
        return f"{metric}{between.join(found)} {value}\n" if value else ""


class _KindBlock:
    """Samples of one metric, with each kind of a label for each thing. What is long is its labels,
    which are as those of others.
    """

    __slots__ = ("_ends", "_labels", "_rows")

    def __init__(self, labels_of: Sequence[str], rows: Sequence[Row], ends: Sequence[str]) -> None:
        self._labels = labels_of
        self._rows = rows
        self._ends = ends

    def text(self, metric: str, _place: int) -> str:
        """The lines of each thing together."""
        lines: list[str] = []
        for where, row in zip(self._labels, self._rows, strict=True):
            start = f"{metric}{where[:-1]}"
            for end, value in zip(self._ends, row, strict=True):
                lines.append(f"{start}{end}{value}\n")
        return "".join(lines)


def _text(value: object) -> str:
    text = str(value)
    return _WORDS.get(text, text)


def _column(values: Sequence[object]) -> str | Sequence[str]:
    """The values' text; one for all if it is the same."""
    texts = list(map(str, values))
    first = texts[0]
    if texts.count(first) == len(texts):
        return _WORDS.get(first, first)
    return texts if _WORDS.keys().isdisjoint(texts) else [_WORDS.get(each, each) for each in texts]


_Place = tuple[_Block | _KindBlock, int]


class _Family:
    """Samples of one metric: lines, and places in blocks."""

    __slots__ = ("kind", "metric", "parts")

    def __init__(self, metric: str, kind: str) -> None:
        self.metric = metric
        self.kind = kind
        self.parts: list[list[str] | _Place] = []

    def lines(self) -> list[str]:
        """The last lines, to which more are added."""
        if self.parts and isinstance(last := self.parts[-1], list):
            return last
        made: list[str] = []
        self.parts.append(made)
        return made


class Table:
    """Adds samples of metrics that are labelled alike. They come in the order of the calls beside
    others of this table; `end` before lines are added to one of its metrics elsewhere.
    """

    def __init__(
        self,
        text: Exposition,
        metrics: Iterable[str],
        kinds: tuple[str, Sequence[str]] | None = None,
    ) -> None:
        """With `kinds`, the name of another label and its values, there is one metric, and a row
        has its value for each of these.
        """
        self._ends = [f',{kinds[0]}="{kind}"}} ' for kind in kinds[1]] if kinds else []
        self._families = [text.family(metric) for metric in metrics]
        self._labels: list[str] = []
        self._rows: list[Row] = []
        text.tables.append(self)

    def add(self, label_text: str, row: Row) -> None:
        """A value for each metric, or None; `row` isn't changed later."""
        self._labels.append(label_text)
        self._rows.append(row)
        if len(self._rows) >= BLOCK_ROWS:
            self.end()

    def end(self) -> None:
        """What was added is complete."""
        if not self._rows:
            return
        block: _Block | _KindBlock
        if self._ends:
            block = _KindBlock(self._labels, self._rows, self._ends)
        else:
            block = _Block(self._labels, self._rows)
        for place, family in enumerate(self._families):
            family.parts.append((block, place))
        self._labels, self._rows = [], []


class Exposition:
    """Collects samples by metric and renders them; one for each scrape. Values are kept, not their
    lines, which are ten times as large: these are made when they are sent.
    """

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self.tables: list[Table] = []
        """To be ended before the text is made."""

    def family(self, metric: str, kind: str = "gauge") -> _Family:
        """The metric's samples; metrics come in the order in which they are first asked for."""
        family = self._families.get(metric)
        if family is None:
            family = self._families[metric] = _Family(metric, kind)
        return family

    def rows(self, metric: str, kind: str = "gauge") -> list[str]:
        """Lines of the metric's samples, to which more are added now."""
        return self.family(metric, kind).lines()

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

    def chunks(self) -> Iterator[bytes]:
        """The whole text, in parts of about CHUNK_BYTES, each made when it is asked for. What was
        made is let go, if only this iterator knows it.
        """
        for table in self.tables:
            table.end()
        families = [(each.metric, each.kind, each.parts[::-1]) for each in self._families.values()]
        return _chunks(families)

    def render(self) -> str:
        """The whole text, ended by a newline."""
        return b"".join(self.chunks()).decode()


def _chunks(families: list[tuple[str, str, list[list[str] | _Place]]]) -> Iterator[bytes]:
    waiting: list[str] = []
    size = 0
    for metric, kind, parts in families:
        head = f"# TYPE {metric} {kind}\n"
        for text in _texts(metric, parts):
            waiting.append(head + text)
            size += len(head) + len(text)
            head = ""
            if size >= CHUNK_BYTES:
                yield "".join(waiting).encode()
                waiting.clear()
                size = 0
    if waiting:
        yield "".join(waiting).encode()


def _texts(metric: str, parts: list[list[str] | _Place]) -> Iterator[str]:
    """All lines of a metric, some at a time. The parts stand in reverse, and are taken away."""
    while parts:
        part = parts.pop()
        if isinstance(part, tuple):
            block, place = part
            if text := block.text(metric, place):
                yield text
        else:
            for at in range(0, len(part), BLOCK_ROWS):
                yield "\n".join([*part[at : at + BLOCK_ROWS], ""])

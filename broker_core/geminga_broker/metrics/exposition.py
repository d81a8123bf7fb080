"""The text that Prometheus scrapes: each metric's lines together, with its type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio

Number = int | float | bool


def escape(value: str) -> str:
    """A label's value, escaped for the text format."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels(pairs: Iterable[tuple[str, str]]) -> str:
    """`{a="b",c="d"}`, or nothing for no labels."""
    inner = ",".join(f'{name}="{escape(value)}"' for name, value in pairs)
    return f"{{{inner}}}" if inner else ""


class Exposition:
    """Collects samples by metric and renders them; one for each scrape."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._types: dict[str, str] = {}

    def add(self, metric: str, label_text: str, value: Number, kind: str = "gauge") -> None:
        """One sample; `label_text` comes from `labels`."""
        lines = self._lines.get(metric)
        if lines is None:
            lines = self._lines[metric] = []
            self._types[metric] = kind
        number = int(value) if isinstance(value, bool) else value
        lines.append(f"{metric}{label_text} {number}")

    def add_fields(
        self,
        series: Iterable[tuple[str, str]],
        label_text: str,
        fields: Mapping[str, object],
    ) -> None:
        """One sample for each (metric, field) whose field exists and is a number."""
        for metric, field in series:
            value = fields.get(field)
            if isinstance(value, int | float):
                self.add(metric, label_text, value)

    def render(self) -> str:
        """The whole text, ended by a newline."""
        out: list[str] = []
        for metric, lines in self._lines.items():
            out.append(f"# TYPE {metric} {self._types[metric]}")
            out.extend(lines)
        out.append("")
        return "\n".join(out)


class _Making:
    """One creation of the page."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.page: bytes | None = None


class SharedPage:
    """A page, created once for all waiting requests; not cached."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: _Making | None = None

    async def get(self) -> bytes:
        """A new page. The first waiting request gets the error of its creation."""
        while (making := self._making) is not None:
            await making.done.wait()
            if making.page is not None:
                return making.page
            # The creating request was cancelled or failed: create it again.
        making = self._making = _Making()
        try:
            # So that requests of the same turn share the page.
            await trio.lowlevel.checkpoint()
            making.page = await self._make()
            return making.page
        finally:
            self._making = None
            making.done.set()

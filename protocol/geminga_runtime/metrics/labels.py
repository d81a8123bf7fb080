"""Labels as Prometheus's text format has them (spec OP-05, BK-13, PX-07)."""

from __future__ import annotations

from collections.abc import Iterable

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


def with_label(label_text: str, name: str, value: str) -> str:
    """The same labels, which are some, and one more behind them."""
    return f'{label_text[:-1]},{name}="{escape(value)}"}}'

"""Searching and paging of long lists (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ROWS = 50
"""Of a page."""


class Page(NamedTuple):
    """A part of a list."""

    items: Sequence[str]
    number: int
    """From 1 on."""
    pages: int
    found: int
    """Items that the search has found."""
    total: int


def page_of(items: Sequence[str], search: str, number: int, rows: int = ROWS) -> Page:
    """A page of the items that contain the text in any case; the last page if there are fewer."""
    wanted = search.strip().lower()
    found = [item for item in items if wanted in item.lower()] if wanted else items
    pages = max(1, -(-len(found) // rows))
    number = min(max(1, number), pages)
    start = (number - 1) * rows
    return Page(found[start : start + rows], number, pages, len(found), len(items))


def page_number(text: str | None) -> int:
    """The page that a query names; 1 for anything else."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 1

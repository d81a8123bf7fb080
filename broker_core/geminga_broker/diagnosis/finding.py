"""A finding about a subscription (spec OP-12)."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """What a finding means."""

    FAIL = "fail"
    """The subscription gets nothing because of it."""
    WARN = "warn"
    """A part of it gets nothing, or soon will."""
    OK = "ok"
    """Nothing is wrong."""


class Finding(NamedTuple):
    """One finding. `code` is stable, for programs; `advice` may be empty."""

    code: str
    level: Level
    sentence: str
    advice: str = ""

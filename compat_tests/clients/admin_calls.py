"""Helpers of the tests of `geminga.admin`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SETTLED_S = 30.0
"""Apache's broker takes a topic's policies when it has read them from its system topic."""


def settled(ask: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    """The answer once it is right; the last one in the end."""
    until_s = time.monotonic() + SETTLED_S
    while True:
        answer = ask()
        if is_right(answer) or time.monotonic() > until_s:
            return answer
        time.sleep(0.05)

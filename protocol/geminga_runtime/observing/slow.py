"""Lines of the log for what took too long (spec OP-08)."""

from __future__ import annotations

import logging
import time

from geminga_runtime.logs import FewLines

SLOW_S = 1.0
"""An operation that takes longer has a line."""


class SlowOperations:
    """Tells of one kind of operations; at most ten lines a minute, the next one counts the rest.
    From any thread, but one at a time.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._lines = FewLines(logger, time.monotonic)

    def ended(self, took_s: float, text: str, *args: object, about: str = "") -> None:
        """An operation of `took_s` seconds has ended: `text` with its arguments says which one.
        Lines about different things are counted apart.
        """
        if took_s > SLOW_S:
            self._lines.warning(f"slow: {text}: %.0f ms", *args, took_s * 1000, about=about)

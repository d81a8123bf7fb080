"""What a piece of work costs, measured so that other load doesn't count."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cpu_s(work: Callable[[], object], enough_s: float = 0.0, tries: int = 5) -> float:
    """Processor seconds of this thread: the least of several tries, without the collector.

    A neighbour on the same core can make one try twice as long. Stops at the first try that took
    less than `enough_s`.
    """
    least = float("inf")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(tries):
            began_s = time.thread_time()
            work()
            least = min(least, time.thread_time() - began_s)
            if least < enough_s:
                break
    finally:
        if was_enabled:
            gc.enable()
    return least

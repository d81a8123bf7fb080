"""Work on large bodies, which the event loop must not wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio
from trio.lowlevel import RunVar

T = TypeVar("T")

INLINE_BYTES_MAX = 8 * 1024
"""Larger bodies are decoded in a thread."""
_turns: RunVar[trio.CapacityLimiter] = RunVar("geminga_broker.admin.rest")
"""One of each event loop: a process may have several brokers, in threads."""


async def off_the_loop(size_bytes: int, work: Callable[[], T]) -> T:
    """The result of `work` on so many bytes of a request; of many it is done in a thread, one after
    another: several at once would leave the event loop too little time.
    """
    if size_bytes <= INLINE_BYTES_MAX:
        return work()
    try:
        one_thread = _turns.get()
    except LookupError:
        one_thread = trio.CapacityLimiter(1)
        _turns.set(one_thread)
    return await trio.to_thread.run_sync(work, limiter=one_thread)

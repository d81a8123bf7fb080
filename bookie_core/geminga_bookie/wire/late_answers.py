"""Requests to a bookie whose answers are late (spec BK-08): one task looks at all of them.

A scope of cancellation for each request costs as much as to send it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from geminga_bookie.errors import RequestTimeout
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Wakeup


@dataclass(slots=True)
class Expected:
    """What somebody waits for, who gets RequestTimeout after `limit_s`."""

    reject: Callable[[RequestTimeout], None]
    limit_s: float
    stream: FramedStream | None
    """The connection that the request is to go by, if there is one."""
    sent_upto: int
    """The bytes of it that are sent once the request is."""
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = trio.current_time() + self.limit_s


PAUSE_S = 0.05
"""Between two looks, each of which is at all requests: so much later one may be given up."""


class LateAnswers:
    """The owner runs `run` in a task; without it nothing is ever late."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._expected: dict[int, Expected] = {}
        self._looks_at = math.inf
        """When `run` looks next."""
        self._sooner = Wakeup()

    def expect(self, txn: int, expected: Expected) -> None:
        """From now on. `txn` is the request's first transaction id."""
        self._expected[txn] = expected
        if expected.deadline < self._looks_at:
            self._looks_at = expected.deadline
            self._sooner.set()

    def forget(self, txn: int) -> None:
        """Nobody waits any more."""
        self._expected.pop(txn, None)

    async def run(self) -> None:
        """For ever: look when the first answer is late that was expected at the last look. Most
        requests have the same limit, so there is a look each limit while there are any.
        """
        while True:
            with trio.move_on_at(self._looks_at):
                await self._sooner.wait()
                continue
            now = trio.current_time()
            late = [txn for txn, each in self._expected.items() if each.deadline <= now]
            for txn in late:
                self._give_up(self._expected.pop(txn))
            left = self._expected.values()
            first = min((each.deadline for each in left), default=math.inf)
            self._looks_at = max(first, now + PAUSE_S)

    def _give_up(self, expected: Expected) -> None:
        stream, limit_s = expected.stream, expected.limit_s
        if stream is not None and stream.sent_bytes < expected.sent_upto:
            stream.abort(f"the bookie has read nothing for {limit_s:g} s")
        expected.reject(RequestTimeout(f"{self._name}: no answer in {limit_s:g} s"))

"""Asking a bookie again that is at one of its limits (spec BK-09, BK-23): it works, and its refusal
says nothing about what it has or will have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import trio

from geminga_bookie.errors import BookkeeperError, TooManyRequests
from geminga_bookie.port import BookiePort
from geminga_runtime.backoff import Backoff
from geminga_runtime.waiters import Promise

T = TypeVar("T")

PATIENCE_S = 60.0
"""A bookie that refuses for so long counts as failed."""
FIRST_PAUSE_S = 0.1
PAUSE_MAX_S = 5.0


class Patience:
    """Pauses between refusals, as long as a bookie may refuse."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_PAUSE_S, PAUSE_MAX_S)
        self._deadline = trio.current_time() + PATIENCE_S

    async def pause(self, refusal: TooManyRequests) -> None:
        """Wait before the next attempt. Raises the refusal when there should be none."""
        now = trio.current_time()
        if now >= self._deadline:
            raise refusal
        await trio.sleep(self._backoff.next_s(now))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Call `ask` until it raises no TooManyRequests. Raises its other errors, and TooManyRequests
    after `PATIENCE_S`.
    """
    patience = Patience()
    while True:
        try:
            return await ask()
        except TooManyRequests as error:
            await patience.pause(error)


async def add_patiently(
    port: BookiePort,
    ledger_id: int,
    master_key: bytes,
    runs: Iterable[tuple[int, Sequence[bytes]]],
) -> None:
    """Recovery adds of runs, each with its first entry id; returns when the bookie has all. Sends
    parts that it refused with TooManyRequests again. Raises BookkeeperError, and TooManyRequests
    if all is refused for `PATIENCE_S`.
    """
    left = [(first, run) for first, run in runs if run]
    patience = Patience()
    while left:
        adding = _Adding(left)
        for first, run in left:
            port.add(ledger_id, master_key, first, run, adding.done, recovery=True)
        refusal = await adding.finished()
        if refusal is None:
            return
        if _entries(adding.refused) < _entries(left):
            patience = Patience()
        left = adding.refused
        await patience.pause(refusal)


def _entries(runs: Sequence[tuple[int, Sequence[bytes]]]) -> int:
    return sum(len(run) for _, run in runs)


class _Adding:
    """Adds that were sent together."""

    def __init__(self, runs: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        self.refused: list[tuple[int, Sequence[bytes]]] = []
        """Parts to send again."""
        self._runs = runs
        self._left = _entries(runs)
        self._answer: Promise[TooManyRequests | None] = Promise()
        self._refusal: TooManyRequests | None = None

    def done(self, first: int, count: int, error: BookkeeperError | None) -> None:
        """See `AddDone`."""
        if isinstance(error, TooManyRequests):
            self._refusal = error
            for begin, run in self._runs:
                if begin <= first < begin + len(run):
                    at = first - begin
                    self.refused.append((first, run[at : at + count]))
        elif error is not None:
            self._answer.reject(error)
            return
        self._left -= count
        if self._left <= 0:
            self._answer.resolve(self._refusal)

    async def finished(self) -> TooManyRequests | None:
        """Why parts were refused, once all are answered. Raises other errors at once."""
        return await self._answer.wait()

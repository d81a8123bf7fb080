"""Long answers: made one at a time, and shared by those who ask at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class _Run(Generic[T]):
    """An answer that is made for all who asked before it was begun."""

    answer: T | None = None


class _Question(Generic[T]):
    """Of those who ask it, the first one that has the lock makes the answer."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.next = _Run[T]()
        self.askers = 0


class SharedAnswers(Generic[T]):
    """Long answers of one kind; none is kept."""

    def __init__(self) -> None:
        self._questions: dict[Hashable, _Question[T]] = {}
        self._turn = trio.Lock()

    async def of(self, question: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` returns to somebody who asked the same, begun after this call. Raises what it
        raises; the next asker then makes the answer.
        """
        asked = self._questions.setdefault(question, _Question[T]())
        asked.askers += 1
        run = asked.next
        try:
            async with asked.lock:
                if run.answer is None:
                    async with self._turn:
                        # Whoever comes from now on needs an answer that is begun later.
                        if asked.next is run:
                            asked.next = _Run[T]()
                        run.answer = await make()
                return run.answer
        finally:
            asked.askers -= 1
            if not asked.askers:
                del self._questions[question]

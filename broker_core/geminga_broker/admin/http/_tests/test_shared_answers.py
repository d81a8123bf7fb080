"""Answers that several askers share: made one at a time, none older than its question."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_broker.admin.http.shared_answers import SharedAnswers


class Maker:
    """Makes numbered answers; each waits until it is let go on."""

    def __init__(self) -> None:
        self.begun = 0
        self.running = 0
        self.running_max = 0
        self.go_on = trio.Semaphore(0)

    async def make(self) -> bytes:
        self.begun += 1
        number = self.begun
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            await self.go_on.acquire()
        finally:
            self.running -= 1
        return b"%d" % number


async def test_who_asks_while_one_is_made_gets_the_next_one() -> None:
    answers, maker, got = SharedAnswers(), Maker(), list[bytes]()

    async def ask() -> None:
        got.append(await answers.of("a", maker.make))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        for _ in range(20):
            nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        maker.go_on.release()
        await wait_all_tasks_blocked()
        assert got == [b"1"]
        maker.go_on.release()
    assert got == [b"1"] + [b"2"] * 20
    assert maker.running_max == 1
    assert answers._questions == {}


async def test_different_questions_are_answered_one_after_the_other() -> None:
    answers, maker = SharedAnswers(), Maker()
    async with trio.open_nursery() as nursery:
        for question in range(5):
            nursery.start_soon(answers.of, question, maker.make)
            await wait_all_tasks_blocked()  # else Trio chooses which one begins
        assert maker.begun == 1
        # Those who wait for their turn share an answer, too.
        nursery.start_soon(answers.of, 4, maker.make)
        for _ in range(5):
            maker.go_on.release()
    assert (maker.begun, maker.running_max) == (5, 1)


async def test_when_the_maker_leaves_the_next_asker_makes_it() -> None:
    answers, maker, got = SharedAnswers(), Maker(), list[bytes]()
    leaving = trio.CancelScope()

    async def leave() -> None:
        with leaving:
            await answers.of("a", maker.make)

    async def ask() -> None:
        got.append(await answers.of("a", maker.make))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        await wait_all_tasks_blocked()
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        leaving.cancel()
        await wait_all_tasks_blocked()
        maker.go_on.release()
    assert got == [b"2"]
    assert answers._questions == {}


async def test_an_error_is_of_one_asker_only() -> None:
    answers = SharedAnswers()

    async def fails() -> bytes:
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await answers.of("a", fails)
    assert await answers.of("a", _fine) == b"fine"


async def _fine() -> bytes:
    await trio.lowlevel.checkpoint()
    return b"fine"

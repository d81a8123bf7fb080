"""Wakeup and Promise."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_runtime.waiters import Promise, Wakeup, own_copy


async def test_sets_between_waits_are_one() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set()
    with trio.testing.assert_checkpoints():
        await wakeup.wait()
    assert not wakeup.is_set()


async def test_wakes_the_waiter(nursery: trio.Nursery) -> None:
    wakeup = Wakeup()
    rounds: list[int] = []

    async def wait() -> None:
        for number in range(3):
            await wakeup.wait()
            rounds.append(number)

    nursery.start_soon(wait)
    for number in range(3):
        await trio.testing.wait_all_tasks_blocked()
        assert len(rounds) == number
        wakeup.set()
    await trio.testing.wait_all_tasks_blocked()
    assert rounds == [0, 1, 2]


async def test_one_waiter_only(nursery: trio.Nursery) -> None:
    wakeup = Wakeup()
    nursery.start_soon(wakeup.wait)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await wakeup.wait()
    wakeup.set()


@pytest.mark.parametrize("set_before", [True, False])
async def test_cancelled_wait_takes_nothing(set_before: bool) -> None:
    wakeup = Wakeup()
    if set_before:
        wakeup.set()
    with trio.move_on_after(0) as scope:
        await wakeup.wait()
    assert scope.cancelled_caught
    wakeup.set()
    await wakeup.wait()


async def test_promise_answers_all(nursery: trio.Nursery) -> None:
    promise: Promise[int] = Promise()
    got: list[int] = []

    async def wait() -> None:
        got.append(await promise.wait())

    for _ in range(3):
        nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not promise.is_done()
    promise.resolve(7)
    promise.resolve(8)
    promise.reject(ValueError())
    assert promise.is_done()
    await trio.testing.wait_all_tasks_blocked()
    assert got == [7, 7, 7]
    with trio.testing.assert_checkpoints():
        assert await promise.wait() == 7


async def test_promise_rejected() -> None:
    promise: Promise[int] = Promise()
    promise.reject(ValueError("no"))
    depths = set()
    for _ in range(3):
        with pytest.raises(ValueError, match="no") as caught:
            await promise.wait()
        depths.add(len(caught.traceback))
    assert len(depths) == 1, "the traceback of a shared error does not grow"


async def test_promise_cancelled_waiter() -> None:
    promise: Promise[int] = Promise()
    with trio.move_on_after(0) as scope:
        await promise.wait()
    assert scope.cancelled_caught
    promise.resolve(1)
    assert await promise.wait() == 1


class Told(OSError):
    """An error with more than its arguments."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


async def test_each_waiter_has_an_error_of_its_own(nursery: trio.Nursery) -> None:
    promise: Promise[int] = Promise()
    raised: list[BaseException] = []

    async def wait(depth: int) -> None:
        if depth:
            await wait(depth - 1)
        else:
            await promise.wait()

    async def fail(n: int) -> None:
        try:
            try:
                raise KeyError(n)
            except KeyError:
                await wait(n)
        except Told as error:
            raised.append(error)

    for n in range(3):
        nursery.start_soon(fail, n)
    await trio.testing.wait_all_tasks_blocked()
    told = Told("gone", 7)
    told.add_note("a note")
    told.__cause__ = ValueError("why")
    promise.reject(told)
    await trio.testing.wait_all_tasks_blocked()
    await fail(3)
    assert len({id(each) for each in raised}) == 4
    assert told.__traceback__ is None
    for error in raised:
        assert isinstance(error, Told)
        assert (str(error), error.number, error.__notes__) == ("gone", 7, ["a note"])
        assert error.__cause__ is told.__cause__
    assert sorted(each.__context__.args[0] for each in raised if each.__context__) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "x"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
        KeyError("k"),
        ExceptionGroup("several", [ValueError("1")]),
    ],
)
def test_copies_of_others_errors(error: Exception) -> None:
    made = own_copy(error)
    assert made is not error
    assert (type(made), str(made), made.args) == (type(error), str(error), error.args)

"""RequestTable."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_runtime.errors import ConnectionLost, RequestTimeout, TooManyRequests
from geminga_runtime.requests import RequestTable


async def test_answers_find_their_requests(nursery: trio.Nursery) -> None:
    table: RequestTable[str] = RequestTable(first_id=5)
    sent: list[int] = []
    answers: dict[int, str] = {}

    async def ask(number: int) -> None:
        answers[number] = await table.call(sent.append, timeout_s=1)

    for number in range(3):
        nursery.start_soon(ask, number)
        await trio.testing.wait_all_tasks_blocked()
    assert sent == [5, 6, 7]
    assert table.next_id() == 8
    assert repr(table) == "<RequestTable 3 pending>"
    for request_id in reversed(sent):
        assert table.resolve(request_id, f"answer {request_id}")
    assert not table.resolve(5, "twice")
    assert not table.reject(99, ValueError())
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {0: "answer 5", 1: "answer 6", 2: "answer 7"}


async def test_requests_with_ids_of_their_own(nursery: trio.Nursery) -> None:
    """An id may be reused as soon as its response came, before the waiting task has run."""
    table: RequestTable[str] = RequestTable()
    answers: list[str] = []

    async def ask() -> None:
        call = table.call(lambda request_id: None, timeout_s=60, request_id=7)
        answers.append(await call)

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert 7 in table
    with pytest.raises(AssertionError, match="request 7 waits already"):
        await table.call(lambda request_id: None, timeout_s=60, request_id=7)
    assert table.resolve(7, "first")
    assert 7 not in table
    with trio.fail_after(60):
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert table.resolve(7, "second")
        await trio.testing.wait_all_tasks_blocked()
    assert answers == ["first", "second"]
    assert len(table) == 0


async def test_who_was_answered_gives_back_no_id_but_its_own(nursery: trio.Nursery) -> None:
    """The next request has the id before the one that was answered has run."""
    table: RequestTable[str] = RequestTable()
    answers: list[str] = []

    async def ask() -> None:
        call = table.call(lambda request_id: None, timeout_s=60, request_id=7)
        answers.append(await call)

    async def answer_later() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert answers == ["first"]
        assert table.resolve(7, "second")

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert table.resolve(7, "first")
    second = await table.call(
        lambda request_id: nursery.start_soon(answer_later), timeout_s=60, request_id=7
    )
    assert second == "second"


async def test_answer_within_send() -> None:
    table: RequestTable[int] = RequestTable()
    assert await table.call(lambda request_id: table.resolve(request_id, 3), timeout_s=1) == 3


async def test_rejected() -> None:
    table: RequestTable[int] = RequestTable()
    with pytest.raises(KeyError):
        await table.call(lambda request_id: table.reject(request_id, KeyError()), timeout_s=1)
    assert len(table) == 0


async def test_timeout(autojump_clock: trio.testing.MockClock) -> None:
    table: RequestTable[int] = RequestTable()
    with pytest.raises(RequestTimeout, match=r"no answer to request 0 in 2\.5 s"):
        await table.call(lambda request_id: None, timeout_s=2.5)
    assert trio.current_time() == 2.5
    assert len(table) == 0
    assert not table.resolve(0, 1), "a late answer is dropped"


async def test_bound_and_cancel(nursery: trio.Nursery) -> None:
    table: RequestTable[int] = RequestTable(requests_max=1)
    scope = trio.CancelScope()

    async def ask() -> None:
        with scope:
            await table.call(lambda request_id: None, timeout_s=60)

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(TooManyRequests):
        await table.call(lambda request_id: pytest.fail("sent"), timeout_s=1)
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert len(table) == 0


async def test_failing_send_leaves_nothing() -> None:
    table: RequestTable[int] = RequestTable()

    def send(request_id: int) -> None:
        raise ValueError("can't be encoded")

    with pytest.raises(ValueError, match="encoded"):
        await table.call(send, timeout_s=1)
    assert len(table) == 0


async def test_fail_all(nursery: trio.Nursery) -> None:
    table: RequestTable[int] = RequestTable()
    failed: list[str] = []

    async def ask() -> None:
        with pytest.raises(ConnectionLost, match="reset"):
            await table.call(lambda request_id: None, timeout_s=60)
        failed.append("reset")

    for _ in range(3):
        nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    table.fail_all(ConnectionLost("reset"))
    table.fail_all(ConnectionLost("later"))
    await trio.testing.wait_all_tasks_blocked()
    assert failed == ["reset"] * 3
    await ask()

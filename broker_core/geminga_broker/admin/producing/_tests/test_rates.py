"""Messages over REST and the topic's publish rate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from geminga_broker.admin.namespaces._tests.test_kept import Admin, admin
from geminga_broker.admin.producing.routes import LARGE_MAX, LARGE_OF_TOPIC_MAX
from geminga_broker.policies.rate_limit import take_all
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_protocol.topic_name import TopicName

D = "/admin/v2/persistent/public/default"
TOPIC = "persistent://public/default/"
POST = "/topics/persistent/public/default/"


async def _limited(at: Admin, name: str, messages: int) -> PersistentTopic:
    rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": -1}
    await at.done("POST", "/admin/v2/namespaces/public/default/publishRate", rate)
    await at.done("PUT", f"{D}/{name}")
    topic = await at.service.topics.get(TopicName.parse(TOPIC + name), create=False)
    assert isinstance(topic, PersistentTopic)
    assert topic.publish_limits
    return topic


async def test_requests_at_once_share_the_rate() -> None:
    async with admin() as at:
        topic = await _limited(at, "t", 1)
        body = {"messages": [{"payload": "x"}] * 100}
        statuses: list[int] = []

        async def one() -> None:
            status, told = await at.ask("POST", POST + "t", body)
            assert isinstance(told, dict)
            results = told.get("messagePublishResults", [])
            refused = status == 503 or all(each["errorCode"] for each in results)
            assert not refused or "publish rate" in str(told)
            statuses.append(503 if refused else status)

        with trio.fail_after(30):  # the debt is of 99 s
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one)
            await one()
        assert sorted(statuses) == [200] + [503] * 20
        assert len(await topic.log.read_range(EARLIEST, entries_max=999, bytes_max=1 << 20)) == 100
        assert topic.publishes_limited


@pytest.mark.slow
async def test_a_request_waits_for_the_rate_and_is_stored_then() -> None:
    async with admin() as at:
        topic = await _limited(at, "t", 20)
        body = {"messages": [{"payload": "x"}] * 40}
        assert (await at.ask("POST", POST + "t", body))[0] == 200  # a second of debt
        began_s = trio.current_time()
        assert (await at.ask("POST", POST + "t", body))[0] == 200
        assert trio.current_time() - began_s > 0.2
        assert len(await topic.log.read_range(EARLIEST, entries_max=99, bytes_max=1 << 20)) == 80


LARGE = {"messages": [{"payload": "x" * 10_000}]}


@asynccontextmanager
async def _held_up(at: Admin, count: int) -> AsyncIterator[None]:
    """So many large requests wait for the rate of their topic; there is another topic `t`."""
    slow = await _limited(at, "slow", 10)
    await at.done("PUT", f"{D}/t")
    take_all(slow.publish_limits, 90, 0, trio.current_time())  # 8 s of debt
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(at.ask, "POST", POST + "slow", LARGE)
        await trio.testing.wait_all_tasks_blocked(0.2)
        yield
        nursery.cancel_scope.cancel()


async def test_a_slow_topic_holds_back_no_other_large_requests() -> None:
    async with admin() as at, _held_up(at, LARGE_MAX + 4):
        with trio.fail_after(3):
            assert (await at.ask("POST", POST + "t", LARGE))[0] == 200


async def test_large_requests_of_one_topic_leave_room_for_others() -> None:
    async with admin() as at, _held_up(at, LARGE_OF_TOPIC_MAX):
        assert (await at.ask("POST", POST + "slow", LARGE))[0] == 503
        assert (await at.ask("POST", POST + "t", LARGE))[0] == 200


async def test_large_requests_that_wait_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds its body."""
    monkeypatch.setattr("geminga_broker.admin.producing.routes.LARGE_HELD_MAX", 4)
    async with admin() as at:
        async with _held_up(at, 4):
            status, told = await at.ask("POST", POST + "t", LARGE)
            assert (status, "Too many large requests" in str(told)) == (503, True)
            small = {"messages": [{"payload": "x"}]}
            assert (await at.ask("POST", POST + "t", small))[0] == 200
        assert (await at.ask("POST", POST + "t", LARGE))[0] == 200

"""Who leads, and who follows."""

from __future__ import annotations

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.election import RETRY_S, Election
from geminga_broker.ownership.records import LEADER_PATH
from geminga_runtime.metadata.api import Node
from geminga_runtime.metadata.memory import MemoryMetadataStore

A = Addresses("pulsar://a:6650", "http://a:8080")
B = Addresses("pulsar://b:6650", "", "", "https://b:8443")


async def test_one_leads_until_it_goes(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    other = store.another_session()
    first, second = Election(store), Election(other)
    async with trio.open_nursery() as nursery:
        scope: trio.CancelScope = trio.CancelScope()

        async def run_first(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await first.run(A, task_status=task_status)

        await nursery.start(run_first)
        await nursery.start(second.run, B)
        assert first.is_leader
        assert not second.is_leader
        leader = await second.leader()
        assert leader is not None
        assert leader.broker_id == "a:8080"
        node = await store.get(LEADER_PATH)
        assert node is not None
        assert node.stat.ephemeral
        assert msgspec.json.decode(node.value) == {
            "brokerId": "a:8080",
            "serviceUrl": "http://a:8080",
        }
        scope.cancel()
        await wait_all_tasks_blocked()
        assert second.is_leader
        assert not first.is_leader
        leader = await first.leader()
        assert leader is not None
        assert leader.service_url == "https://b:8443"
        nursery.cancel_scope.cancel()
    assert await store.get(LEADER_PATH) is None


async def test_the_session_decides(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    other = store.another_session()
    first, second = Election(store), Election(other)
    async with trio.open_nursery() as nursery:
        await nursery.start(first.run, A)
        await nursery.start(second.run, B)
        store.expire_session()
        assert not first.is_leader, "in a new session, without a turn of the loop"
        store.set_available(False)
        store.expire_session()
        assert not first.is_leader, "without a session"
        await wait_all_tasks_blocked()
        assert second.is_leader
        assert not first.is_leader
        nursery.cancel_scope.cancel()


async def test_a_change_is_told(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    first = Election(store)
    told: list[bool] = []

    async def follow() -> None:
        while True:
            await first.wait_change()
            told.append(first.is_leader)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        await nursery.start(first.run, A)
        await wait_all_tasks_blocked()
        store.set_available(False)
        store.expire_session()
        await wait_all_tasks_blocked()
        assert told == [True, False]
        store.set_available(True)
        await trio.sleep(2 * RETRY_S)
        assert told == [True, False, True]
        nursery.cancel_scope.cancel()


async def test_the_node_of_an_earlier_life_is_replaced(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    again = Election(store.another_session())
    killed = Election(store)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as life:
                await life.start(killed.run, A)
                store.set_available(False)  # so that it can't step down
                scope.cancel()
        store.set_available(True)
        await nursery.start(again.run, A)
        await trio.sleep(2 * RETRY_S)
        assert again.is_leader
        store.expire_session()
        await wait_all_tasks_blocked()
        assert again.is_leader
        nursery.cancel_scope.cancel()


async def test_a_leader_whose_record_cant_be_read_leads_on(autojump_clock: MockClock) -> None:
    """An Apache broker of another version, for example: it would stand again, and so on."""
    store = MemoryMetadataStore()
    other = store.another_session()
    value = b'{"serviceUrl": "http://old:8080"}'
    await other.put(LEADER_PATH, value, epoch=other.session.epoch)
    first = Election(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(first.run, A)
        await trio.sleep(2 * RETRY_S)
        assert not first.is_leader
        assert await first.leader() is None
        node = await store.get(LEADER_PATH)
        assert node is not None
        assert node.value == value
        other.expire_session()
        await wait_all_tasks_blocked()
        assert first.is_leader
        nursery.cancel_scope.cancel()


async def test_who_steps_down_late_removes_nobody(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ends while it steps down: another one leads by then."""
    store = MemoryMetadataStore()
    other = store.another_session()
    get, first = store.get, Election(store)

    async def late(path: str) -> Node | None:
        found = await get(path)
        monkeypatch.undo()
        store.expire_session()
        await other.put(LEADER_PATH, b"{}", epoch=other.session.epoch)
        return found

    async with trio.open_nursery() as nursery:
        await nursery.start(first.run, A)
        assert first.is_leader
        monkeypatch.setattr(store, "get", late)
        nursery.cancel_scope.cancel()
    node = await other.get(LEADER_PATH)
    assert node is not None
    assert node.stat.created_by_self


async def test_without_the_store_nobody_leads(autojump_clock: MockClock) -> None:
    """It starts all the same, and stands once the store answers."""
    store = MemoryMetadataStore()
    first = Election(store)
    async with trio.open_nursery() as nursery:
        store.set_available(False)
        await nursery.start(first.run, A)
        assert not first.is_leader
        store.set_available(True)
        await trio.sleep(2 * RETRY_S)
        assert first.is_leader
        nursery.cancel_scope.cancel()


async def test_who_steps_down_leads_no_more_when_the_node_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryMetadataStore()
    first = Election(store)
    delete, led = store.delete, []

    async def watched(path: str, version: int | None = None) -> None:
        led.append(first.is_leader)
        await delete(path, version)

    monkeypatch.setattr(store, "delete", watched)
    async with trio.open_nursery() as nursery:
        await nursery.start(first.run, A)
        nursery.cancel_scope.cancel()
    assert led == [False]

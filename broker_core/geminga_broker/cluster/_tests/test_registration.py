"""The broker's node (spec PX-03, CL-07)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.registration import Registration
from geminga_broker.ownership.brokers import BROKERS_PATH
from geminga_runtime.metadata.api import Stat, StoreUnavailable, ValueTooLarge
from geminga_runtime.metadata.memory import MemoryMetadataStore

EVERY = Addresses("pulsar://h:6650", "http://h:8080", "pulsar+ssl://h:6651", "https://h:8443")
PATH = f"{BROKERS_PATH}/h:8080"


async def _own(store: MemoryMetadataStore) -> bytes:
    """The value, which must be of a node of this session."""
    node = await store.get(PATH)
    assert node is not None
    assert node.stat.ephemeral
    assert node.stat.created_by_self
    return node.value


async def test_the_node_is_there_until_it_is_removed() -> None:
    store = MemoryMetadataStore()
    node = Registration(store, PATH)
    await node.register(b"1")
    assert await _own(store) == b"1"
    for value in (b"2", b"3"):
        await node.update(value)
        assert await _own(store) == value
    await node.remove()
    assert not await store.exists(PATH)


async def test_a_node_of_an_earlier_session_is_replaced() -> None:
    """It would be deleted with that session."""
    store = MemoryMetadataStore()
    old = store.another_session()
    await old.put(PATH, b"of a broker that was killed", epoch=old.session.epoch)
    node = Registration(store, PATH)
    await node.register(b"1")
    old.expire_session()
    assert await _own(store) == b"1"


async def test_the_node_of_a_successor_is_not_removed() -> None:
    """A broker stood still until another one had its name; then it goes on, and stops."""
    store = MemoryMetadataStore()
    node = Registration(store, PATH)
    await node.register(b"1")
    store.expire_session()
    successor = store.another_session()
    await Registration(successor, PATH).register(b"2")
    await node.remove()
    found = await successor.get(PATH)
    assert found is not None
    assert found.value == b"2"


async def test_after_a_lost_session_the_node_is_made_anew() -> None:
    store = MemoryMetadataStore()
    node = Registration(store, PATH)
    await node.register(b"1")
    store.expire_session()
    assert not node.is_current
    await node.update(b"2")
    assert await _own(store) == b"2"


@pytest.mark.parametrize("then", ["removed", "changed", "replaced"])
async def test_who_touches_the_node_doesnt_keep_it(then: str) -> None:
    store = MemoryMetadataStore()
    node = Registration(store, PATH)
    await node.register(b"1")
    other = store.another_session()
    if then == "changed":
        await other.put(PATH, b"x")
    else:
        await other.delete(PATH)
        if then == "replaced":
            await other.put(PATH, b"x", epoch=other.session.epoch)
    await node.update(b"2")
    assert await _own(store) == b"2"
    await node.update(b"3")
    assert await _own(store) == b"3"


class Deaf(MemoryMetadataStore):
    """A store whose answer to a change is lost: it was made, or it wasn't."""

    answers = True
    makes = True
    takes_bytes = 100

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        if len(value) > self.takes_bytes:
            raise ValueTooLarge("too large")
        if not self.answers and not self.makes:
            raise StoreUnavailable("no answer")
        found = await super().put(path, value, expected_version, epoch=epoch, sequential=sequential)
        if not self.answers:
            raise StoreUnavailable("no answer")
        return found


@pytest.mark.parametrize("makes", [True, False])
async def test_a_change_without_an_answer_is_no_reason_to_remove_the_node(*, makes: bool) -> None:
    """Others would take the broker for gone."""
    store = Deaf()
    node = Registration(store, PATH)
    await node.register(b"1")
    kinds: list[str] = []

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        async with other.watch(BROKERS_PATH) as changes:
            task_status.started()
            async for change in changes:
                kinds.append(change.kind.value)

    other = store.another_session()
    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        store.answers, store.makes = False, makes
        with pytest.raises(StoreUnavailable):
            await node.update(b"2")
        store.answers = True
        await node.update(b"3")
        assert await _own(store) == b"3"
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert kinds == ["modified"] * (2 if makes else 1)


async def test_a_refused_value_leaves_the_one_before() -> None:
    store = Deaf()
    node = Registration(store, PATH)
    await node.register(b"1")
    with pytest.raises(ValueTooLarge):
        await node.update(bytes(101))
    await node.update(b"2")
    assert await _own(store) == b"2"


def test_ids() -> None:
    assert EVERY.broker_id == "h:8080"
    assert EVERY._replace(web_url="").broker_id == "h:8443"
    assert Addresses("pulsar://[::1]:6650", "", "", "").broker_id == "[::1]:6650"
    assert Addresses("", "", "pulsar+ssl://h:6651", "").broker_id == "h:6651"


def _complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


async def test_another_broker_of_the_same_id_is_told_once_a_minute(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryMetadataStore()
    other = store.another_session()
    contested: list[float] = []
    node = Registration(store, PATH)
    await node.register(b"1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.follow, "h:8080", lambda: contested.append(trio.current_time()))
        await trio.testing.wait_all_tasks_blocked()
        await node.update(b"2")
        await trio.sleep(1)
        assert not _complaints(caplog)
        for _ in range(30):
            await Registration(other, PATH).register(b"3")
            await trio.sleep(1)
            await node.register(b"4")
            await trio.sleep(1)
        (said,) = _complaints(caplog)
        assert "the id of this one, h:8080" in said
        assert "an advertisedAddress and webServicePort of its own" in said
        await trio.sleep(60)
        await Registration(other, PATH).register(b"3")
        await trio.sleep(1)
        assert len(_complaints(caplog)) == len(contested) == 2
        nursery.cancel_scope.cancel()


async def test_successors_are_no_other_brokers(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One of a broker that was killed, whose session ends later; one of a broker that drains."""
    store = MemoryMetadataStore()
    killed = store.another_session()
    await Registration(killed, PATH).register(b"of one that was killed")
    node = Registration(store, PATH)
    await node.register(b"1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.follow, "h:8080", lambda: None)
        await trio.testing.wait_all_tasks_blocked()
        killed.expire_session()
        await trio.sleep(1)
        store.expire_session()
        await trio.sleep(1)
        await node.register(b"2")
        await trio.sleep(1)
        await node.remove()
        await Registration(killed, PATH).register(b"3")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert not _complaints(caplog)

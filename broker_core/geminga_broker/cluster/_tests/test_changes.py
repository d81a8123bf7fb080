"""What changed is applied: soon, once, and until it is."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from geminga_broker.authz.needs import Place
from geminga_broker.cluster.changes import (
    EVENTS_MAX,
    GATHER_S,
    NAMES_MAX,
    REST_MAX_S,
    RETRY_MAX_S,
    Changed,
    ChangeQueue,
    PolicyChanges,
    changes_of,
)
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import Change, Notification, StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

POLICIES = "/admin/policies"


def told(path: str, kind: Change = Change.MODIFIED) -> tuple[str, str]:
    """The policies and the grants that changed."""
    policies, grants = changes_of(Notification(kind, path))
    return str(policies), str(grants)


@pytest.mark.parametrize("kind", [Change.CREATED, Change.MODIFIED, Change.DELETED])
def test_what_a_record_decides(kind: Change) -> None:
    assert told(f"{POLICIES}/t", kind) == ("", "t")
    assert told(f"{POLICIES}/t/n", kind) == ("t/n", "t/n")
    assert told(f"{POLICIES}/t/c/n", kind) == ("t/c/n", "t/c/n")


@pytest.mark.parametrize(
    "path",
    [
        POLICIES,
        "/admin/policies-of-others/t/n",
        "/",
    ],
)
def test_what_decides_nothing(path: str) -> None:
    assert told(path) == ("", "")


def test_lists_of_children_decide_nothing() -> None:
    assert told(f"{POLICIES}/t/n", Change.CHILDREN) == ("", "")


def test_missed_changes_are_everything() -> None:
    assert told(POLICIES, Change.LOST) == ("everything", "everything")


def test_names_are_bounded() -> None:
    changed = Changed(f"t/{number}" for number in range(NAMES_MAX))
    assert not changed.everything
    assert str(changed) == f"t/0, t/1, t/10, t/100, t/1000 and {NAMES_MAX - 5} more"
    changed.add(["t/1"])
    assert not changed.everything
    changed.merge(Changed(["t/more"]))
    assert changed.everything
    assert not changed.names
    changed.add(["t/n"])
    assert not changed.names
    assert changed.covers("anything")
    few = Changed(["t/n"])
    assert few.covers("x", "t/n")
    assert not few.covers("x", "")
    few.merge(Changed(everything=True))
    assert few.everything


class Applier:
    """Notes what is applied, and when; fails as long as it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str]] = []
        self.error: Exception | None = None
        self.left: list[str] = []
        self.takes_s = 0.0

    async def __call__(self, changed: Changed) -> Changed:
        self.calls.append((round(trio.current_time(), 3), str(changed)))
        await trio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return Changed(self.left)

    def take(self) -> list[tuple[float, str]]:
        """The calls since the last time."""
        calls, self.calls = self.calls, []
        return calls


@asynccontextmanager
async def running() -> AsyncIterator[tuple[ChangeQueue, Applier]]:
    applier = Applier()
    queue = ChangeQueue("policies", applier)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        yield queue, applier
        nursery.cancel_scope.cancel()


async def test_a_burst_is_applied_once(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as (queue, applier):
        for _ in range(100):
            queue.note(Changed(["t/n"]))
        queue.note(Changed(["t/m"]))
        await trio.sleep(1)
        assert applier.take() == [(GATHER_S, "t/m, t/n")]
        queue.note(Changed(["t/n"]))
        await trio.sleep(1)
        assert applier.take() == [(1 + GATHER_S, "t/n")]


async def test_a_long_application_is_followed_by_a_rest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as (queue, applier):
        for takes_s, rest_s in ((0.1, 0.4), (9.0, REST_MAX_S)):
            applier.takes_s = takes_s
            queue.note(Changed(["t/n"]))
            await trio.sleep(GATHER_S + takes_s / 2)
            queue.note(Changed(["t/m"]))  # told while the other one is applied
            await trio.sleep(takes_s / 2)
            began_at = trio.current_time()
            await trio.sleep(30)
            (first_at, first), (second_at, second) = applier.take()
            assert (first, second) == ("t/n", "t/m")
            assert first_at == pytest.approx(began_at - takes_s)
            assert second_at == pytest.approx(began_at + rest_s)


async def test_what_was_applied_here_is_not_applied_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as (queue, applier):
        queue.note(Changed(["t/n", "t/m"]))  # of t/n: our own write
        await queue.apply_now("t/n")
        await trio.sleep(1)
        assert applier.take() == [(0, "t/n"), (GATHER_S, "t/m")]


async def test_what_can_not_be_applied_is_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (queue, applier):
        applier.error = StoreUnavailable("away")
        queue.note(Changed(["t/n"]))
        await trio.sleep(10)
        assert [round(at) for at, _ in applier.take()] == [0, 1, 3, 7]
        assert "changed policies not applied yet: t/n: away" in caplog.text
        # Others don't wait for it.
        applier.error = None
        queue.note(Changed(["t/m"]))
        await trio.sleep(1)
        assert [name for _, name in applier.take()] == ["t/m"]
        await trio.sleep(10)
        assert [name for _, name in applier.take()] == ["t/n"]
        await trio.sleep(1000)
        assert applier.take() == []


async def test_tries_are_never_more_than_a_minute_apart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as (queue, applier):
        applier.left = ["persistent://t/n/x"]
        queue.note(Changed(["t/n"]))
        await trio.sleep(1000)
        calls = applier.take()
        assert {name for _, name in calls[1:]} == {"persistent://t/n/x"}
        assert calls[-1][0] - calls[-2][0] == pytest.approx(RETRY_MAX_S, abs=1)
        # The next failure begins with short waits again.
        applier.left = []
        await trio.sleep(RETRY_MAX_S + 1)
        assert len(applier.take()) == 1
        applier.error = StoreUnavailable("away")
        queue.note(Changed(["t/n"]))
        await trio.sleep(2)
        assert len(applier.take()) == 2


async def test_missed_changes_hold_what_was_left(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as (queue, applier):
        applier.error = StoreUnavailable("away")
        queue.note(Changed(["t/n"]))
        await trio.sleep(0.5)
        applier.error = None
        queue.note(Changed(everything=True))
        await trio.sleep(100)
        assert [name for _, name in applier.take()] == ["t/n", "everything"]


async def test_a_failed_call_is_made_good(autojump_clock: trio.testing.MockClock) -> None:
    """Whoever changed a record gets an error; the change is applied all the same."""
    async with running() as (queue, applier):
        applier.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            await queue.apply_now("t/n")
        applier.error = None
        await trio.sleep(1)
        assert [name for _, name in applier.take()] == ["t/n", "t/n"]
        applier.takes_s = 1
        with trio.move_on_after(0.5):
            await queue.apply_now("t/m")
        await trio.sleep(5)
        assert [name for _, name in applier.take()] == ["t/m", "t/m"]


async def test_a_defect_is_logged_and_the_next_change_is_heard(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (queue, applier):
        applier.error = RuntimeError("oops")
        with caplog.at_level(logging.CRITICAL):
            queue.note(Changed(["t/n"]))
            await trio.sleep(1)
        applier.error = None
        queue.note(Changed(["t/m"]))
        await trio.sleep(100)
        assert [name for _, name in applier.take()] == ["t/n", "t/m"]


class Broker:
    """Topics and connections that note what they are asked."""

    topics = (
        "persistent://t/n/x",
        "persistent://t/n/x-partition-3",
        "non-persistent://t/m/x",
        "persistent://t/c/n/x",
        "persistent://u/n/x",
    )
    places = (Place("t", "t/n"), Place("t", "t/m"), Place("u", "u/n"))

    def __init__(self, store: MemoryMetadataStore) -> None:
        self.applied: list[str] = []
        self.checked: list[str] = []
        self.changes = PolicyChanges(store, self.apply, self.recheck)

    async def apply(self, concerned: object) -> list[str]:
        assert callable(concerned)
        await trio.lowlevel.checkpoint()
        self.applied += filter(concerned, self.topics)
        return []

    async def recheck(self, concerned: object) -> None:
        assert callable(concerned)
        await trio.lowlevel.checkpoint()
        self.checked += [place.namespace for place in self.places if concerned(place)]

    async def settle(self) -> tuple[list[str], list[str]]:
        """What was applied and checked since the last time."""
        await trio.sleep(1)
        found = self.applied, self.checked
        self.applied, self.checked = [], []
        return found


@asynccontextmanager
async def following(store: MemoryMetadataStore) -> AsyncIterator[Broker]:
    broker = Broker(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.changes.run)
        await broker.settle()
        yield broker
        nursery.cancel_scope.cancel()


async def test_whom_a_change_concerns(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryMetadataStore()
    x, part, other, old, foreign = Broker.topics
    async with following(store.another_session()) as broker:
        await store.put(f"{POLICIES}/t/n", b"{}")  # which makes the tenant, too
        assert await broker.settle() == ([x, part], ["t/n", "t/m"])
        await store.put(f"{POLICIES}/t/n", b"{}")
        assert await broker.settle() == ([x, part], ["t/n"])
        await store.put(f"{POLICIES}/t", b"{}")
        assert await broker.settle() == ([], ["t/n", "t/m"])
        await store.put(f"{POLICIES}/t/c/n", b"{}")
        assert (await broker.settle())[0] == [old]
        broker.changes.topics_changed(["persistent://t/n/x"])
        assert await broker.settle() == ([x, part], [])
        broker.changes.topics_changed(["non-persistent://t/m/x", "persistent://t/m/unloaded"])
        assert await broker.settle() == ([other], [])
        await store.put("/admin/local-policies/t/n", b"{}")
        await store.put("/admin/clusters/c", b"{}")
        assert await broker.settle() == ([], [])
        await store.delete(f"{POLICIES}/t/n")
        assert await broker.settle() == ([x, part], ["t/n"])
        assert foreign not in broker.applied


async def test_all_is_looked_at_again_when_changes_were_missed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = MemoryMetadataStore()
    every = list(Broker.topics), [place.namespace for place in Broker.places]
    async with following(store.another_session()) as broker:
        request = store.put_request(f"{POLICIES}/v/n", b"{}", None, None, False)
        for _ in range(EVENTS_MAX + 1):  # the listener has no turn meanwhile
            store.put_now(request)
        assert await broker.settle() == every
        assert await broker.settle() == ([], [])


async def test_all_is_looked_at_when_the_watch_begins(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broker = Broker(MemoryMetadataStore())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.changes.run)
        found = await broker.settle()
        nursery.cancel_scope.cancel()
    assert found == (list(Broker.topics), [place.namespace for place in Broker.places])


async def test_own_changes_are_applied_at_once_and_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = MemoryMetadataStore()
    await store.put(f"{POLICIES}/t/n", b"{}")
    x, part, *_ = Broker.topics
    async with following(store) as broker:
        await store.put(f"{POLICIES}/t/n", b"{}")
        await broker.changes.namespace_changed("t/n")
        await broker.changes.grants_changed("t", "t/n")
        assert (broker.applied, broker.checked) == ([x, part], ["t/n"])
        assert await broker.settle() == ([x, part], ["t/n"])
        broker.changes.topics_changed(["persistent://t/n/x"])
        await broker.changes.topic_changed(TopicName.parse(part))
        assert broker.applied == [x, part]
        assert await broker.settle() == ([x, part], [])
        await store.put(f"{POLICIES}/t", b"{}")
        await broker.changes.grants_changed("t")
        assert broker.checked == ["t/n", "t/m"]
        assert await broker.settle() == ([], ["t/n", "t/m"])


async def test_it_ends_with_the_store(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryMetadataStore()
    broker = Broker(store)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.changes.run)
            await broker.settle()
            await store.aclose()

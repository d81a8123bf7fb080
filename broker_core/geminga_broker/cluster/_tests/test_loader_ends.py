"""A topic that leaves: its end goes on whoever asked for it, and a fenced one makes room."""

from __future__ import annotations

from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker._tests.wire import open_broker, with_network
from geminga_broker.cluster._tests.test_loader import KEY, A, OpenGate, get_into, loader
from geminga_broker.cluster.ending import LEAVE_S
from geminga_broker.cluster.loader import UNLOADS_MAX, Creation
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogFenced
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName


async def test_an_end_goes_on_though_who_asked_for_it_was_cancelled() -> None:
    """Half of a deletion would be left else."""
    async with loader() as (topics, logs):
        logs.gate.set()
        await topics.get(A, create=True)
        go, steps = trio.Event(), [0]

        async def end(_topic: Topic) -> None:
            steps.append(1)
            await go.wait()
            steps.append(2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(topics.leave, KEY, end)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            go.set()
        assert steps == [0, 1, 2]
        assert KEY not in topics.topics


@pytest.mark.parametrize("fails", [False, True])
async def test_a_fenced_topic_that_nobody_closes_any_more_is_loaded_anew(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request to unload its bundle was cancelled, and the bundle came back."""

    async def failing(_topic: Topic) -> None:
        raise LogFenced("another broker has it")

    async with loader() as (topics, logs):
        logs.gate.set()
        topic = await topics.get(A, create=True)
        topic.fence()
        if fails:
            monkeypatch.setattr("geminga_broker.cluster.loader.close_topic", failing)
        found = [await topics.get(A, create=True) for _ in range(2)]
        assert found[0] is found[1] is topics.topics[KEY] is not topic
        assert not found[0].fenced


async def test_a_fenced_topic_of_another_broker_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To close it may take long, and is nothing to whoever asks for it."""

    async def hanging() -> None:
        await trio.sleep_forever()

    async with loader() as (topics, logs):
        logs.gate.set()
        topic = await topics.get(A, create=True)
        topic.fence()
        monkeypatch.setattr(topic, "close", hanging)  # as with a log whose bookies are away
        cast(OpenGate, topics._gate).refused = True
        with pytest.raises(BrokerError, match="not served by this instance"), trio.fail_after(10):
            await topics.get(A, create=True)
        assert topics.topics[KEY] is topic


async def test_a_cancelled_close_of_many_begins_with_no_more(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that stops while its bookies are away would wait for all of them, one after the
    other.
    """

    async def never(_topic: Topic, *, moving: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr("geminga_broker.cluster.loader.close_topic", never)
    async with loader() as (topics, logs):
        logs.gate.set()
        topic = await topics.get(A, create=True)
        for index in range(3 * UNLOADS_MAX):
            topics.topics[f"{KEY}-{index}"] = topic
        began = trio.current_time()
        with trio.move_on_after(1):
            await topics.unload_all()
        assert trio.current_time() - began == pytest.approx(LEAVE_S)
        assert f"topic={KEY} is not closed: {KEY} can't be left in time" in caplog.text
        assert not [each for each in caplog.records if each.exc_info]
        for key in [key for key in topics.topics if key != KEY]:
            del topics.topics[key]


@pytest.mark.parametrize("is_under_way", [True, False])
async def test_a_stop_bounds_the_ends_that_it_meets(
    autojump_clock: MockClock, is_under_way: bool
) -> None:
    """The metadata store is away, and a log's end waits for it."""

    async def never(_topic: Topic) -> None:
        await trio.sleep_forever()

    async def leave() -> None:
        with pytest.raises(BrokerError, match="can't be left in time"):
            await topics.leave(KEY, never)

    async with loader() as (topics, logs):
        logs.gate.set()
        await topics.get(A, create=True)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            if is_under_way:
                nursery.start_soon(leave)
                await wait_all_tasks_blocked()
            topics.endings.end_by(began + 8)
            topics.endings.end_by(began + 16)
            if not is_under_way:
                nursery.start_soon(leave)
        assert trio.current_time() - began == pytest.approx(8)


async def test_a_broker_stops_though_a_topic_cannot_be_closed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_topic: Topic, *, moving: object) -> None:
        await trio.sleep_forever()

    async with open_broker(with_network(shutdown_timeout_ms=2000)) as broker:
        await broker.service.topics.get(A, create=True)
        with monkeypatch.context() as patched:
            patched.setattr("geminga_broker.cluster.loader.close_topic", never)
            began = trio.current_time()
            await broker.service.shutdown()
            assert trio.current_time() - began == pytest.approx(2, abs=0.5)


async def test_a_topic_that_takes_too_long_to_close_is_told(autojump_clock: MockClock) -> None:
    async def never(_topic: Topic) -> None:
        await trio.sleep_forever()

    async with loader() as (topics, logs):
        logs.gate.set()
        await topics.get(A, create=True)
        with pytest.raises(BrokerError, match="can't be left in time") as raised:
            await topics.leave(KEY, never)
        assert raised.value.code == ServerError.ServiceNotReady
        assert await topics.get(A, create=False) is topics.topics[KEY]


@pytest.mark.parametrize("fenced", [False, True])
async def test_a_topic_whose_end_failed_stays_unless_it_is_fenced(fenced: bool) -> None:
    """A fenced one takes nobody in: the next who asks loads it anew."""
    async with loader() as (topics, logs):
        logs.gate.set()
        topic = cast(PersistentTopic, await topics.get(A, create=True))
        topic.on_fenced = lambda: None  # it would leave by itself

        async def end(_topic: Topic) -> None:
            if fenced:
                topic.publish_failed(LogFenced("another broker has it"))
            raise BrokerError(ServerError.PersistenceError, "no")

        with pytest.raises(BrokerError, match="no"):
            await topics.leave(KEY, end)
        assert (KEY in topics.topics) == (not fenced)
        assert (await topics.get(A, create=True) is topic) == (not fenced)


async def test_missing_topics_and_a_stop_are_no_failed_loads() -> None:
    async with loader() as (topics, logs):
        for _ in range(5):
            with pytest.raises(BrokerError, match="does not exist"):
                await topics.get(A, create=False)
        assert topics.counts.failures == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(get_into, topics, A, [], True)
            await wait_all_tasks_blocked()
            assert topics.loading == 1
            topics._environment.nursery.cancel_scope.cancel()  # ends this block, too
    assert logs.opened
    assert (topics.loading, topics.counts.failures) == (0, 0)


@pytest.mark.parametrize(("index", "refused"), [(0, False), (1, False), (2, True), (3, True)])
async def test_no_partition_is_made_behind_the_last(index: int, refused: bool) -> None:
    """No consumer of the topic would read it."""
    async with loader() as (topics, logs):
        logs.gate.set()
        await topics._catalog.create_partitioned(A, 2)
        name = TopicName.parse(f"{KEY}-partition-{index}")
        if refused:
            with pytest.raises(BrokerError, match="does not exist"):
                await topics.get(name, create=True)
            with pytest.raises(BrokerError, match="Illegal topic partition name"):
                await topics.get(name, create=Creation.BY_HAND)
        else:
            await topics.get(name, create=True)
        assert (str(name) in topics.topics) == (not refused)


async def test_who_may_create_waits_for_one_who_may_not_and_then_creates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with loader() as (topics, logs), trio.open_nursery() as nursery:
        logs.gate.set()
        check, go = topics._check, trio.Event()

        async def slowly(name: TopicName, create: Creation) -> bool:
            await go.wait()
            return await check(name, create)

        monkeypatch.setattr(topics, "_check", slowly)
        found: list[object] = []
        for create in (False, True):
            nursery.start_soon(get_into, topics, A, found, create)
            await wait_all_tasks_blocked()
        assert topics.loading == 1
        go.set()
        await wait_all_tasks_blocked()
        assert found == [ServerError.TopicNotFound, topics.topics[KEY]]

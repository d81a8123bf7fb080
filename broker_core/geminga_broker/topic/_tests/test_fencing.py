"""Names on dead connections, and topic epochs that outlive a topic's unloading."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.fake_client import FakeConnection, subscribe_request
from geminga_broker._tests.topic_world import World
from geminga_broker._tests.wire import Type, message, open_broker
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogFenced, LogWriteFailed
from geminga_broker.topic._tests.test_producers import add, refusal
from geminga_broker.topic.api import SubType
from geminga_broker.topic.fencing import EPOCH_PROPERTY, stored_epoch
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.commands import producing
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode as Mode
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

NAME = "persistent://public/default/fenced"


@pytest.mark.parametrize(("value", "epoch"), [(None, None), ("", None), ("x", None), ("7", 7)])
def test_the_stored_epoch(value: str | None, epoch: int | None) -> None:
    assert stored_epoch({} if value is None else {EPOCH_PROPERTY: value}) == epoch


@pytest.mark.parametrize("mode", [Mode.Exclusive, Mode.ExclusiveWithFencing, Mode.WaitForExclusive])
async def test_an_epoch_is_known_when_the_topic_is_loaded_again(world: World, mode: int) -> None:
    topic = world.topic()
    await add(topic, "shared")
    assert world.log.properties == {}
    topic.disconnect_producers()
    await add(topic, "a", mode)
    topic.disconnect_producers()
    await add(topic, "b", mode)
    assert world.log.properties == {EPOCH_PROPERTY: "1"}
    again = world.topic()
    assert await refusal(again, "a", mode, topic_epoch=0) == ServerError.ProducerFenced
    assert (await add(again, "b", mode, topic_epoch=1)).topic_epoch == 1


async def test_a_waiting_producer_is_ready_after_its_epoch_is_durable(
    world: World, autojump_clock
) -> None:
    topic = world.topic()
    first = await add(topic, "a", Mode.Exclusive)
    ready: list[str] = []
    second = await add(topic, "b", Mode.WaitForExclusive, on_ready=lambda p: ready.append(p.name))
    world.log.slow_s = 1
    first.close()
    await trio.sleep(0.5)
    assert not second.ready
    assert ready == []
    await trio.sleep(1)
    assert second.ready
    assert ready == ["b"]
    assert world.log.properties == {EPOCH_PROPERTY: "1"}


async def test_a_waiting_producer_is_closed_if_its_epoch_cannot_be_stored(world: World) -> None:
    topic = world.topic()
    first = await add(topic, "a", Mode.Exclusive)
    second = await add(topic, "b", Mode.WaitForExclusive)
    world.log.fail = LogWriteFailed("full")
    first.close()
    await world.settle()
    assert second.connection.dropped_producers
    assert not topic.producers


async def test_without_a_durable_epoch_there_is_no_exclusive_producer(world: World) -> None:
    topic = world.topic()
    world.log.fail = LogWriteFailed("full")
    assert await refusal(topic, "a", Mode.Exclusive) == ServerError.PersistenceError
    assert not topic.producers
    world.log.fail = None
    await add(topic, "a", Mode.Exclusive)


@pytest.mark.parametrize("mode", [Mode.Shared, Mode.Exclusive])
async def test_while_nothing_can_be_stored_producers_are_refused(world: World, mode: int) -> None:
    topic = world.topic()
    old = await add(topic, "old")
    world.log.unready = LogWriteFailed("no bookie takes writes")
    with pytest.raises(BrokerError, match="could not store messages: no bookie takes") as error:
        await add(topic, "new", mode)
    assert error.value.code == ServerError.PersistenceError
    assert list(topic.producers) == ["old"]
    world.log.unready = None
    old.close()
    await add(topic, "new", mode)


async def test_a_topic_taken_by_another_broker_is_unloaded(world: World) -> None:
    topic = world.topic()
    world.log.fail = LogFenced("taken")
    assert await refusal(topic, "a", Mode.Exclusive) == ServerError.ServiceNotReady
    assert topic.fenced


async def test_fenced_while_its_epoch_is_written(world: World, autojump_clock) -> None:
    topic = world.topic()
    world.log.slow_s = 1
    codes: list[int] = []

    async def first() -> None:
        codes.append(await refusal(topic, "a", Mode.Exclusive))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.sleep(0.5)
        second = await add(topic, "b", Mode.ExclusiveWithFencing)
    assert codes == [ServerError.ProducerFenced]
    assert topic.producers == {"b": second}


@pytest.mark.parametrize("persistent", [True, False])
async def test_a_name_on_a_dead_connection_is_free(world: World, persistent: bool) -> None:
    topic = world.topic() if persistent else world.passing()
    dead = FakeConnection("dead")
    old = await add(topic, "a", connection=dead)
    assert await refusal(topic, "a") == ServerError.ProducerBusy
    dead.alive = False
    new = await add(topic, "a")
    assert topic.producers == {"a": new}
    old.close()
    assert topic.producers == {"a": new}


async def test_an_exclusive_subscription_on_a_dead_connection_is_free(world: World) -> None:
    topic = world.topic()
    dead = FakeConnection("dead")
    request = subscribe_request(dead, 1, "s", sub_type=SubType.Exclusive)
    old = await topic.subscribe(request)
    alive = FakeConnection("alive")
    request = subscribe_request(alive, 1, "s", sub_type=SubType.Exclusive)
    with pytest.raises(BrokerError) as error:
        await topic.subscribe(request)
    assert error.value.code == ServerError.ConsumerBusy
    dead.alive = False
    new = await topic.subscribe(request)
    old.close()
    assert list(topic.subscriptions["s"].consumers) == [new]


@pytest.mark.parametrize("mode", [Mode.ExclusiveWithFencing, Mode.WaitForExclusive])
async def test_nothing_of_an_earlier_producer_is_stored_behind_the_answer(
    mode: Mode.ValueType, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], None]] = []
    add_now = MemoryBookie.add

    def hang(self: MemoryBookie, *args: Any, **options: Any) -> None:
        waiting.append(partial(add_now, self, *args, **options))

    async with open_broker() as broker:
        old, new = broker.client(), broker.client()
        await old.connect()
        await new.connect()
        await old.open_producer(NAME)
        monkeypatch.setattr(MemoryBookie, "add", hang)
        await old.send(message(1), message(2))
        await wait_all_tasks_blocked()
        await new.send(producing.producer(NAME, 1, 7, access_mode=mode))
        await wait_all_tasks_blocked()
        if mode == Mode.WaitForExclusive:
            answer = (await new.expect(Type.PRODUCER_SUCCESS)).command
            assert not answer.producer_success.producer_ready
            await old.stream.aclose()
            await wait_all_tasks_blocked()
        topic = broker.service.topics.loaded[NAME]
        assert isinstance(topic, PersistentTopic)
        told: list[Position] = []

        async def wait_for_answer() -> None:
            answer = (await new.expect(Type.PRODUCER_SUCCESS)).command
            assert answer.producer_success.producer_ready
            told.append(topic.log.last_position)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_answer)
            await wait_all_tasks_blocked()
            assert not told
            monkeypatch.undo()
            for add in waiting:
                add()
        assert told == [topic.log.last_position]
        assert topic.log.last_position.entry_id == 1

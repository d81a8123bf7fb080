"""Access modes, epochs, fencing, names (BR-20)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import FakeConnection, item, producer_request
from geminga_broker._tests.topic_world import World
from geminga_broker.errors import BrokerError
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.producer import Producer
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode as Mode
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


async def add(
    topic: PersistentTopic, name: str, mode: int = Mode.Shared, **more: object
) -> Producer:
    connection = more.pop("connection", None) or FakeConnection(name)
    request = producer_request(connection, name, access_mode=mode, **more)
    return await topic.add_producer(request)


async def refusal(
    topic: PersistentTopic, name: str, mode: int = Mode.Shared, **more: object
) -> int:
    with pytest.raises(BrokerError) as error:
        await add(topic, name, mode, **more)
    return error.value.code


async def test_names_are_unique(world: World) -> None:
    topic = world.topic()
    await add(topic, "a")
    assert await refusal(topic, "a") == ServerError.ProducerBusy
    assert await refusal(topic, "a", epoch=5) == ServerError.ProducerBusy


async def test_a_later_epoch_of_a_generated_name_takes_over(world: World) -> None:
    topic = world.topic()
    old = await add(topic, "a", user_provided_name=False, epoch=1)
    new = await add(topic, "a", user_provided_name=False, epoch=2)
    assert topic.producers == {"a": new}
    old.close()
    assert topic.producers == {"a": new}
    assert await refusal(topic, "a", user_provided_name=False, epoch=2) == ServerError.ProducerBusy


async def test_exclusive_refuses_other_producers(world: World) -> None:
    topic = world.topic()
    first = await add(topic, "a", Mode.Exclusive)
    assert first.topic_epoch == 0
    assert await refusal(topic, "b") == ServerError.ProducerBusy
    assert await refusal(topic, "b", Mode.Exclusive) == ServerError.ProducerFenced
    first.close()
    assert (await add(topic, "b", Mode.Exclusive)).topic_epoch == 1


async def test_exclusive_refuses_where_others_are(world: World) -> None:
    topic = world.topic()
    await add(topic, "a")
    assert await refusal(topic, "b", Mode.Exclusive) == ServerError.ProducerFenced


async def test_an_old_epoch_is_fenced(world: World) -> None:
    topic = world.topic()
    (await add(topic, "a", Mode.Exclusive)).close()
    (await add(topic, "b", Mode.Exclusive)).close()
    code = await refusal(topic, "a", Mode.Exclusive, topic_epoch=0)
    assert code == ServerError.ProducerFenced
    assert (await add(topic, "b", Mode.Exclusive, topic_epoch=1)).topic_epoch == 1
    code = await refusal(topic, "a", Mode.WaitForExclusive, topic_epoch=0)
    assert code == ServerError.ProducerFenced


async def test_fencing_closes_all_producers(world: World) -> None:
    topic = world.topic()
    connections = [FakeConnection(str(n)) for n in range(3)]
    await add(topic, "a", connection=connections[0])
    told: list[tuple[str, int]] = []
    waiting = await add(
        topic,
        "w",
        Mode.WaitForExclusive,
        connection=connections[1],
        on_refused=lambda producer, error: told.append((producer.name, error.code)),
    )
    assert not waiting.ready
    new = await add(topic, "n", Mode.ExclusiveWithFencing, connection=connections[2])
    assert [c.dropped_producers for c in connections] == [[1], [], []]
    assert told == [("w", ServerError.ProducerFenced)]
    assert topic.producers == {"n": new}
    waiting.refuse(BrokerError(ServerError.ProducerFenced, "again"))
    assert len(told) == 1


async def test_waiting_producers_get_their_turn_in_order(world: World) -> None:
    topic = world.topic()
    ready: list[str] = []
    first = await add(topic, "a")
    waiting = [
        await add(topic, name, Mode.WaitForExclusive, on_ready=lambda p: ready.append(p.name))
        for name in "bcd"
    ]
    assert topic.stats().waiting_publishers == 3
    assert await refusal(topic, "x") == ServerError.ProducerBusy
    waiting[0].publish([item(1)])
    assert world.log.entries == []
    waiting[1].close()
    first.close()
    await world.settle()
    assert ready == ["b"]
    assert waiting[0].topic_epoch == 0
    waiting[0].publish([item(1)])
    assert len(world.log.entries) == 1
    waiting[0].close()
    await world.settle()
    assert ready == ["b", "d"]
    assert waiting[2].topic_epoch == 1


async def test_wait_for_exclusive_is_ready_at_once_on_a_free_topic(world: World) -> None:
    topic = world.topic()
    assert (await add(topic, "a", Mode.WaitForExclusive)).ready


async def test_bad_sequence_ids_are_refused_alone(world: World) -> None:
    topic = world.topic()
    connection = FakeConnection()
    producer = await add(topic, "a", connection=connection)
    producer.publish([item(1), item(9)._replace(highest_sequence_id=5), item(2)])
    assert connection.errors == [(9, ServerError.MetadataError)]
    assert connection.receipts == [(1, 0), (2, 1)]


async def test_a_batchs_receipt_has_the_highest_sequence_id(world: World) -> None:
    topic = world.topic()
    connection = FakeConnection()
    producer = await add(topic, "a", connection=connection)
    producer.publish([item(3, batch=4)._replace(highest_sequence_id=6)])
    (receipt,) = [c.send_receipt for c in connection.commands(7)]
    assert (receipt.sequence_id, receipt.highest_sequence_id) == (3, 6)


async def test_a_producer_that_closes_is_answered_first(world: World) -> None:
    topic = world.topic()
    connection = FakeConnection("c")
    producer = await add(topic, "a", connection=connection)
    world.log.hold = True
    producer.publish([item(1), item(2)])
    closed: list[int] = []
    producer.finish(lambda: closed.append(len(connection.receipts)))
    producer.publish([item(3)])
    assert closed == []
    assert topic.producers == {"a": producer}
    while not closed:
        world.log.complete()
    assert [number for number, _ in connection.receipts] == [1, 2]
    assert closed == [2]
    assert topic.producers == {}

"""Producers that wait for exclusive access: in turn, and bounded (BR-20)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.topic_world import World
from geminga_broker.topic import registry
from geminga_broker.topic._tests.test_producers import add, refusal
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode as Mode
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


async def test_nobody_passes_one_that_waits(world: World) -> None:
    topic = world.topic()
    shared = await add(topic, "shared")
    waits = await add(topic, "waits", Mode.WaitForExclusive)
    assert not waits.ready
    assert await refusal(topic, "another") == ServerError.ProducerBusy
    assert await refusal(topic, "exclusive", Mode.Exclusive) == ServerError.ProducerFenced
    shared.close()
    await world.settle()
    assert waits.ready
    assert topic.producers == {"waits": waits}


async def test_so_many_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "WAITING_MAX", 2)
    topic = world.topic()
    await add(topic, "has it", Mode.Exclusive)
    for name in ("a", "b"):
        assert not (await add(topic, name, Mode.WaitForExclusive)).ready
    assert await refusal(topic, "c", Mode.WaitForExclusive) == ServerError.ProducerBusy


async def test_one_that_was_fenced_does_not_come_back(world: World) -> None:
    topic = world.topic()
    first = await add(topic, "a", Mode.Exclusive)
    await add(topic, "b", Mode.ExclusiveWithFencing)
    epoch = first.topic_epoch
    assert topic.producers["b"].topic_epoch == epoch + 1
    for mode in (Mode.ExclusiveWithFencing, Mode.WaitForExclusive):
        assert await refusal(topic, "a", mode, topic_epoch=epoch) == ServerError.ProducerFenced
    assert list(topic.producers) == ["b"]
    topic.producers["b"].close()
    refused = await refusal(topic, "a", Mode.Exclusive, topic_epoch=epoch)
    assert refused == ServerError.ProducerFenced

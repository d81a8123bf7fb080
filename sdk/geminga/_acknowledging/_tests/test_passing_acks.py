"""Non-persistent topics: all messages have one id, and none may be taken for acknowledged."""

from __future__ import annotations

import pytest
import trio

import geminga
from geminga.testing import open_broker

TOPIC = "non-persistent://public/default/passing"


@pytest.mark.parametrize("batched", [False, True])
async def test_a_message_that_comes_soon_after_an_acknowledgement(*, batched: bool) -> None:
    async with open_broker() as url, geminga.connect(url) as client:
        reader = await client.create_reader(TOPIC, geminga.LATEST)
        consumer = await client.subscribe(TOPIC, "s", ack_timeout_s=10.0)
        asked = await client.subscribe(TOPIC, "asked", ack_receipt_enabled=True)
        upto = await client.subscribe(TOPIC, "upto")
        producer = await client.create_producer(TOPIC, batching_enabled=batched)
        with trio.fail_after(30):
            for number in range(20):
                # Two at once: in a batch of two, each time.
                await producer.submit(b"%d" % number)
                await producer.submit(b"and %d" % number)
                await producer.flush()
                for wanted in (b"%d" % number, b"and %d" % number):
                    assert (await reader.read_next()).data == wanted
                    message = await consumer.receive()
                    assert message.data == wanted
                    await consumer.acknowledge(message)
                    message = await asked.receive()
                    assert message.data == wanted
                    await asked.acknowledge(message)
                    message = await upto.receive()
                    assert message.data == wanted
                    await upto.acknowledge_cumulative(message)

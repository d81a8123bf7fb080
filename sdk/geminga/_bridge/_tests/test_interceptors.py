"""Interceptors and statistics of producers in the derived faces."""

from __future__ import annotations

import asyncio
import dataclasses

import geminga.aio as ga
import geminga.blocking as gb


class Marks(gb.ProducerInterceptor):
    """Marks each message, and counts what it is told."""

    def __init__(self) -> None:
        self.stored: list[tuple[bytes, gb.MessageId | None]] = []

    def before_send(self, message: gb.ProducerMessage) -> gb.ProducerMessage:
        return dataclasses.replace(message, data=message.data + b"!")

    def on_send_acknowledgement(
        self,
        message: gb.ProducerMessage,
        message_id: gb.MessageId | None,
        error: gb.GemingaError | None,
    ) -> None:
        assert error is None
        self.stored.append((message.data, message_id))


def test_blocking(url: str, topic: str) -> None:
    marks = Marks()
    with gb.connect(url) as client, client.subscribe(topic, "s") as consumer:
        producer = client.create_producer(topic, interceptors=[marks])
        receipts = [producer.submit(b"%d" % n) for n in range(200)]
        receipts.append(producer.send_nowait(b"200", partition_key="k"))
        ids = [receipt.wait() for receipt in receipts]
        producer.flush()
        assert marks.stored == [(b"%d!" % n, ids[n]) for n in range(201)]
        assert [consumer.receive(60).data for _ in range(201)] == [b"%d!" % n for n in range(201)]
        found = producer.statistics()
        assert (found.total_msgs_sent, found.total_acks_received) == (201, 201)


def test_aio(url: str, topic: str) -> None:
    marks = Marks()

    async def main() -> None:
        async with ga.connect(url) as client:
            producer = await client.create_producer(topic, interceptors=[marks])
            receipts = [await producer.submit(b"%d" % n) for n in range(200)]
            ids = [await receipt.wait() for receipt in receipts]
            await producer.flush()
            assert marks.stored == [(b"%d!" % n, ids[n]) for n in range(200)]
            assert producer.statistics().total_acks_received == 200

    asyncio.run(main())

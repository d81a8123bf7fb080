"""Producers of the workload: programs that use the SDK as any other would."""

from __future__ import annotations

from random import Random

import trio

from geminga import Client, Producer, Receipt
from geminga.errors import GemingaError, MemoryLimitError, ProducerQueueFullError

from .books import Books, Sent
from .plan import KEYS, ProducerPlan

RETRY_S = 0.5


class Sender:
    """Sends what its plan says, and notes what became of it."""

    def __init__(self, plan: ProducerPlan, client: Client, books: Books, rng: Random) -> None:
        self.plan = plan
        self._client = client
        self._books = books
        self._rng = rng
        self._number = 0
        self._open: list[tuple[Sent, Receipt]] = []
        self.producer: Producer | None = None

    async def run(self) -> None:
        plan = self.plan
        for life in range(plan.lives):
            producer = self.producer = await self._make()
            share = plan.count // plan.lives
            await self._send_all(producer, life, share)
            if self._rng.random() < 0.5:
                await self._flush(producer)
            await producer.aclose()
            self._books.log.add(f"{plan.label} closed")
            for sent, receipt in self._open:
                await self._settle(sent, receipt)
            self._open.clear()

    async def _make(self) -> Producer:
        while True:
            try:
                made = await self._client.create_producer(
                    self.plan.topic.name,
                    **self.plan.options(),  # type: ignore[arg-type]
                )
            except GemingaError as error:
                self._books.log.add(f"{self.plan.label} not made: {type(error).__name__}")
                await trio.sleep(RETRY_S)
            else:
                self._books.log.add(f"{self.plan.label} made")
                return made

    async def _flush(self, producer: Producer) -> None:
        try:
            await producer.flush()
        except GemingaError as error:
            self._books.log.add(f"{self.plan.label} flush: {type(error).__name__}")

    async def _send_all(self, producer: Producer, life: int, count: int) -> None:
        plan, rng = self.plan, self._rng
        for at in range(count):
            sent = self._compose(life)
            self._books.sends(sent)
            try:
                await self._send(producer, sent)
            except GemingaError as error:
                sent.failed = type(error).__name__
                self._books.log.add(f"{sent.data[:12]!r} not sent: {sent.failed}")
                if type(error).__name__ in ("ProducerFencedError", "AlreadyClosedError"):
                    return
            if at % plan.burst == plan.burst - 1:
                await trio.sleep(plan.pause_s * rng.random())

    def _compose(self, life: int) -> Sent:
        rng, plan = self._rng, self.plan
        number = self._number
        self._number += 1
        filler = rng.choice((0, 10, 60))
        if plan.topic.chunked:
            filler = rng.choice((0, 100, 300, 700))
        name = f"{plan.label}.{number}|".encode()
        key = f"k{rng.randrange(KEYS)}" if plan.topic.batching == "key" else None
        if key is None and rng.random() < 0.6:
            key = f"k{rng.randrange(KEYS)}"
        return Sent(plan, life, number, name + bytes([65 + number % 26]) * filler, key)

    async def _send(self, producer: Producer, sent: Sent) -> None:
        plan = self.plan
        number = sent.number if plan.numbered else None
        if plan.style == "send" and self._rng.random() < 0.3:
            message_id = await producer.send(sent.data, sequence_id=number, partition_key=sent.key)
            self._books.settled(sent, message_id, None)
            return
        while True:
            try:
                if plan.style == "nowait":
                    receipt = producer.send_nowait(
                        sent.data, sequence_id=number, partition_key=sent.key
                    )
                else:
                    receipt = await producer.submit(
                        sent.data, sequence_id=number, partition_key=sent.key
                    )
            except (ProducerQueueFullError, MemoryLimitError):
                await trio.sleep(0.01)
            else:
                self._open.append((sent, receipt))
                return

    async def _settle(self, sent: Sent, receipt: Receipt) -> None:
        try:
            message_id = await receipt.wait()
        except GemingaError as error:
            self._books.settled(sent, None, type(error).__name__)
        else:
            self._books.settled(sent, message_id, None)

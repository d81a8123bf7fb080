"""Consumers of the workload."""

from __future__ import annotations

from random import Random

import trio

from geminga import Client, Consumer, InitialPosition, Message
from geminga.errors import AlreadyClosedError, GemingaError, OperationTimeoutError
from geminga_protocol.message_id import EARLIEST_ID

from .books import Books
from .plan import ConsumerPlan, SubscriptionPlan

RETRY_S = 0.5
RECEIVE_S = 0.5


class Taker:
    """Receives, and acknowledges or not, as its plan says; in the end it acknowledges all."""

    def __init__(
        self,
        plan: ConsumerPlan,
        subscription: SubscriptionPlan,
        client: Client,
        books: Books,
        rng: Random,
    ) -> None:
        self.plan = plan
        self.subscription = subscription
        self._client = client
        self._books = books
        self._rng = rng
        self._unacked: dict[str, Message] = {}
        self.consumer: Consumer | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            consumer = self.consumer = await self._subscribe()
            self._unacked.clear()
            try:
                while await self._turn(consumer):
                    pass
            except AlreadyClosedError:
                raise
            except GemingaError as error:
                self._note(f"failed: {type(error).__name__}")
                if consumer._parts.error is not None:
                    self._books.violate(f"{self.plan.label} ended: {error!r}")
            self.consumer = None
            await consumer.aclose()
            self._note("closed")
            await trio.sleep(self._rng.random() * RETRY_S)

    def _note(self, text: str) -> None:
        self._books.log.add(f"{self.plan.label} {text}")

    async def _subscribe(self) -> Consumer:
        while True:
            try:
                made = await self._client.subscribe(
                    self.subscription.topic.name,
                    self.subscription.name,
                    initial_position=InitialPosition.EARLIEST,
                    **self.subscription.options(self.plan),  # type: ignore[arg-type]
                )
            except GemingaError as error:
                self._note(f"not made: {type(error).__name__}")
                await trio.sleep(RETRY_S)
            else:
                self._note("made")
                return made

    async def _turn(self, consumer: Consumer) -> bool:
        """Some messages; answers whether to go on with this consumer."""
        messages: list[Message] = []
        if self.plan.many:
            messages = await consumer.receive_batch(self._rng.randint(1, 8), wait_s=RECEIVE_S)
        else:
            try:
                messages = [await consumer.receive(RECEIVE_S)]
            except OperationTimeoutError:
                pass
        for message in messages:
            self._books.delivered(self.subscription, self.plan.label, message)
        if not messages:
            await self._ack_rest(consumer)
        for message in messages:
            try:
                await self._treat(consumer, message)
            except OperationTimeoutError as error:
                self._note(f"ack: {error.args[0][:30]}")
            except GemingaError as error:
                self._note(f"ack: {type(error).__name__}")
        if self._books.draining:
            return True
        if self.plan.think_s:
            await trio.sleep(self._rng.random() * self.plan.think_s)
        if messages and self._rng.random() < self.plan.seeks:
            await self._seek(consumer, messages[0])
        return not messages or self._rng.random() >= self.plan.leaves

    async def _treat(self, consumer: Consumer, message: Message) -> None:
        rng, plan = self._rng, self.plan
        chosen = 1.0 if self._books.draining else rng.random()
        if chosen < plan.nacks:
            consumer.negative_acknowledge(message)
        elif chosen < plan.nacks + plan.forgets:
            pass
        elif not self.subscription.cumulative:
            await consumer.acknowledge(message)
        elif chosen > 0.7:
            self._unacked.pop(message.topic_name, None)
            await consumer.acknowledge_cumulative(message)
        else:
            self._unacked[message.topic_name] = message

    async def _ack_rest(self, consumer: Consumer) -> None:
        """Nothing comes: acknowledge what was only kept in mind."""
        while self._unacked:
            _, message = self._unacked.popitem()
            try:
                await consumer.acknowledge_cumulative(message)
            except GemingaError as error:
                self._note(f"ack: {type(error).__name__}")

    async def _seek(self, consumer: Consumer, message: Message) -> None:
        to = EARLIEST_ID
        if not self.subscription.kind.is_shared and self._rng.random() < 0.5:
            # All before it was received; with Shared it may wait at another consumer.
            to = message.message_id
        books = self._books.received[self.subscription.name]
        books.seeks += 1
        self._note(f"seeks {to}")
        if to == EARLIEST_ID:
            self._unacked.clear()
        else:
            # Of another partition nothing comes again.
            self._unacked.pop(message.topic_name, None)
        try:
            await consumer.seek(to)
        except GemingaError as error:
            self._note(f"seek: {type(error).__name__}")
        else:
            self._note("has sought")

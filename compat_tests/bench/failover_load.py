"""When each of many topics is served again: our SDK, which tries again each second, publishes to
and reads from all of them: ``python -m compat_tests.bench.failover_load --url URL --prefix P
--topics N --duration-s S``.

Prints "running" once all topics have clients, and at the end one JSON line, as `many_topics_load`,
which measures what users of an official client see: that one waits longer after each refusal.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import trio

from compat_tests.bench.topic_counts import TopicCounts, arguments, result
from geminga import Client, Consumer, ConsumerType, GemingaError, Producer

TRY_AGAIN_S = 1.0
PATIENCE_S = 120.0
OPENED_AT_ONCE = 50


class Topic(TopicCounts):
    """One topic's producer, consumer and counts."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._came = trio.Event()

    async def open(self, client: Client, stack: AsyncExitStack) -> None:
        """Make the clients; the stack closes them."""
        subscribing = client.subscribe(
            self.name, "s", consumer_type=ConsumerType.EXCLUSIVE, receiver_queue_size=100
        )
        self._consumer: Consumer[bytes] = await stack.enter_async_context(subscribing)
        producing = client.create_producer(self.name, send_timeout_s=PATIENCE_S)
        self._producer: Producer[bytes] = await stack.enter_async_context(producing)

    async def publish(self, pause_s: float, duration_s: float) -> None:
        """One message after the other has its receipt."""
        end = trio.current_time() + duration_s
        while (began := trio.current_time()) < end:
            number, self.sent = self.sent, self.sent + 1
            try:
                await self._producer.send(b"%d" % number)
                is_stored = True
            except GemingaError:
                is_stored = False
            self.settled(trio.current_time() - began, is_stored=is_stored)
            await trio.sleep_until(began + pause_s)

    async def consume(self) -> None:
        """For ever."""
        async for message in self._consumer:
            self.came(int(message.data))
            self._came.set()
            await self._consumer.acknowledge(message)

    async def drained(self) -> None:
        """Return when all that has a receipt came."""
        while len(self.received) < self.receipts:
            self._came = trio.Event()
            await self._came.wait()


async def load(url: str, prefix: str, count: int, rate: float, duration_s: float) -> None:
    """Run the load."""
    topics = [Topic(f"{prefix}-{number}") for number in range(count)]
    often = Client(url, initial_backoff_s=TRY_AGAIN_S / 4, max_backoff_s=TRY_AGAIN_S)
    async with often as client, AsyncExitStack() as stack:
        room = trio.CapacityLimiter(OPENED_AT_ONCE)

        async def open_one(topic: Topic) -> None:
            async with room:
                await topic.open(client, stack)

        async with trio.open_nursery() as nursery:
            for topic in topics:
                nursery.start_soon(open_one, topic)
        async with trio.open_nursery() as consuming:
            for topic in topics:
                consuming.start_soon(topic.consume)
            print("running", flush=True)
            async with trio.open_nursery() as publishing:
                for number, topic in enumerate(topics):
                    publishing.start_soon(topic.publish, count / rate, duration_s)
                    if number % OPENED_AT_ONCE == 0:
                        await trio.sleep(count / rate * OPENED_AT_ONCE / count)
            with trio.move_on_after(PATIENCE_S):
                for topic in topics:
                    await topic.drained()
            consuming.cancel_scope.cancel()
        print(json.dumps(result(topics)), flush=True)


def main() -> None:
    """Read the arguments, and run."""
    options = arguments(__doc__).parse_args()
    trio.run(load, options.url, options.prefix, options.topics, options.rate, options.duration_s)


if __name__ == "__main__":
    main()

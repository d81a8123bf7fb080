"""When each of many topics is served again: our SDK, which tries again each second, publishes to
and reads from all of them: ``python -m compat_tests.bench.failover_load --url URL --prefix P
--topics N --duration-s S``.

Prints "running" once all topics have clients, and at the end one JSON line, as `many_topics_load`,
which measures what users of an official client see: that one waits longer after each refusal.
"""

from __future__ import annotations

import argparse
import json
from contextlib import AsyncExitStack

import trio

from geminga import Client, Consumer, ConsumerType, Producer

TRY_AGAIN_S = 1.0
PATIENCE_S = 120.0
OPENED_AT_ONCE = 50


class Topic:
    """One topic's producer, consumer and counts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.longest_s = 0.0
        self.sent = 0
        self.failed = 0
        self.received: set[int] = set()
        self.again = 0
        self.disorder = 0
        self._highest = -1
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
            try:
                await self._producer.send(b"%d" % self.sent)
                self.sent += 1
            except Exception:  # counted, whatever it is
                self.failed += 1
            self.longest_s = max(self.longest_s, trio.current_time() - began)
            await trio.sleep_until(began + pause_s)

    async def consume(self) -> None:
        """For ever."""
        async for message in self._consumer:
            number = int(message.data)
            self.again += number in self.received
            self.disorder += number < self._highest and number not in self.received
            self.received.add(number)
            self._highest = max(self._highest, number)
            self._came.set()
            await self._consumer.acknowledge(message)

    async def drained(self) -> None:
        """Return when all that has a receipt came."""
        while len(self.received) < self.sent:
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


def result(topics: list[Topic]) -> dict[str, float]:
    """What became of the messages."""
    waits = sorted(topic.longest_s for topic in topics)
    return {
        "longest_s": waits[-1],
        "median_s": waits[len(waits) // 2],
        "sent": sum(topic.sent for topic in topics),
        "failed": sum(topic.failed for topic in topics),
        "lost": sum(max(0, topic.sent - len(topic.received)) for topic in topics),
        "again": sum(topic.again for topic in topics),
        "disorder": sum(topic.disorder for topic in topics),
    }


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--topics", type=int, required=True)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--duration-s", type=float, required=True)
    options = parser.parse_args()
    trio.run(load, options.url, options.prefix, options.topics, options.rate, options.duration_s)


if __name__ == "__main__":
    main()

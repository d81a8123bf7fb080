"""The mixed load: flows that publish at a steady rate on a topic of their own and receive by one
subscription type each, and side works: readers, topics that come and go, compaction, REST.

All of them go on through whatever happens to the server; what fails is counted by its class.
"""

from __future__ import annotations

import math
import sys
import urllib.request
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import trio

import geminga
import geminga.admin
from compat_tests.soak.tracks import Track

TICK_S = 0.02
PATIENCE_S = 120.0
"""What hasn't come so long after its receipt is lost: restarts and redeliveries are over then."""
REFUSED_EACH = 500
"""One message in so many is refused once."""
KEYS = 64
_LAST_PLACES = 20_000
_TOLD_MAX = 100
OWN_ERRORS = (geminga.GemingaError, OSError, trio.TooSlowError)


@dataclass
class Figures:
    """What all flows saw since the figures were last taken, and counts since the start."""

    publish_s: list[float] = field(default_factory=list)
    arrive_s: list[float] = field(default_factory=list)
    rest_s: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def error(self, where: str, error: Exception) -> None:
        """Count what failed."""
        self.errors[f"{where}: {type(error).__name__}"] += 1


@dataclass(frozen=True)
class Shape:
    """A flow: how it publishes and receives. Rates are messages a second, sizes bytes."""

    name: str
    consumer_type: geminga.ConsumerType
    rate: float
    size: int = 256
    consumers: int = 1
    partitions: int = 0
    by_key: bool = False
    deduplicated: bool = False
    batched: bool = True
    chunked: bool = False
    deliver_after_s: float = 0.0
    joins_each_s: float = 0.0
    """A consumer leaves and another one comes that often."""
    through_proxy: bool = False

    @property
    def in_order(self) -> bool:
        """Whether first deliveries come in order, in all or for a key."""
        return self.consumer_type != geminga.ConsumerType.SHARED


def shapes(rate: float) -> list[Shape]:
    """The flows; together they publish about so many messages a second."""
    kind = geminga.ConsumerType
    return [
        Shape("shared", kind.SHARED, rate * 0.3, consumers=3, through_proxy=True),
        Shape("keyed", kind.KEY_SHARED, rate * 0.2, consumers=3, by_key=True, joins_each_s=17),
        Shape("parts", kind.FAILOVER, rate * 0.2, consumers=2, partitions=4, through_proxy=True),
        Shape("exact", kind.EXCLUSIVE, rate * 0.1, deduplicated=True, batched=False),
        Shape("singles", kind.SHARED, rate * 0.1, consumers=2, batched=False, size=1024),
        Shape("later", kind.SHARED, rate * 0.1, deliver_after_s=10),
        Shape("large", kind.EXCLUSIVE, 0.5, size=1 << 20, batched=False, through_proxy=True),
        Shape("chunks", kind.EXCLUSIVE, 0.1, size=12 << 20, batched=False, chunked=True),
    ]


class Flow:
    """One shape's producer and consumers."""

    def __init__(self, shape: Shape, namespace: str, figures: Figures) -> None:
        self.shape = shape
        self.topic = f"persistent://{namespace}/{shape.name}"
        self.track = Track(in_order=shape.in_order)
        self._taken = trio.Event()
        self._told = 0
        self._figures = figures
        self._places: dict[int, geminga.MessageId] = {}
        self._recent: deque[int] = deque()

    async def publish(self, client: geminga.Client, stop: trio.Event) -> None:
        """At the rate, whatever the answers take, until `stop`; then waits for all receipts."""
        shape = self.shape
        producer = await client.create_producer(
            self.topic,
            producer_name=f"soak-{shape.name}",
            batching_enabled=shape.batched,
            # On Key_Shared a batch goes to one consumer: it must have one key.
            batching_type=(
                geminga.BatchingType.KEY_BASED if shape.by_key else geminga.BatchingType.DEFAULT
            ),
            chunking_enabled=shape.chunked,
            # Nothing is given up over a restart; with deduplication a name is to go on.
            send_timeout_s=0 if shape.deduplicated else 60,
        )
        filler = bytes(shape.size)
        number, began = 0, trio.current_time()
        while not stop.is_set():
            due = began + number / shape.rate
            if due > trio.current_time():
                await trio.sleep(max(TICK_S, due - trio.current_time()))
            now = trio.current_time()
            while (due := began + number / shape.rate) <= now and not stop.is_set():
                await self._submit(producer, number, due, filler)
                number += 1
        with trio.move_on_after(90):
            await self._guarded("flush", producer.flush)
        await self._guarded("close", producer.aclose)

    async def _submit(
        self, producer: geminga.Producer[bytes], number: int, due: float, filler: bytes
    ) -> None:
        payload = b"%d %.6f %s" % (number, due, filler)
        shape = self.shape
        try:
            receipt = await producer.submit(
                payload,
                partition_key=f"k{number % KEYS}" if shape.by_key or shape.partitions else None,
                deliver_after=(
                    timedelta(seconds=shape.deliver_after_s) if shape.deliver_after_s else None
                ),
            )
        except geminga.GemingaError as error:
            self.track.fail()
            self._figures.error(f"{shape.name} submit", error)
            return
        receipt.add_done_callback(lambda done: self._settled(done, number, due))

    def _settled(self, receipt: geminga.Receipt, number: int, due: float) -> None:
        now = trio.current_time()
        if receipt.error is not None:
            self.track.fail()
            self._figures.error(f"{self.shape.name} receipt", receipt.error)
            return
        self.track.confirm(number, now)
        if self.shape.size < 1 << 16:
            self._figures.publish_s.append(now - due)

    async def consume(self, client: geminga.Client, stop: trio.Event, number: int) -> None:
        """Receive and acknowledge until `stop`; a consumer that ends is made again."""
        stays = self.shape.joins_each_s * (number + 1) if self.shape.joins_each_s else math.inf
        while not stop.is_set():
            try:
                async with client.subscribe(
                    self.topic,
                    "soak",
                    consumer_type=self.shape.consumer_type,
                    initial_position=geminga.InitialPosition.EARLIEST,
                    negative_ack_redelivery_delay_s=1.0,
                    receiver_queue_size=10 if self.shape.size > 1 << 16 else 500,
                ) as consumer:
                    ends = trio.current_time() + stays
                    while not stop.is_set() and trio.current_time() < ends:
                        await self._take(consumer, await consumer.receive_batch(wait_s=0.5))
            except OWN_ERRORS as error:
                self._figures.error(f"{self.shape.name} consume", error)
                await trio.sleep(1)

    async def drained(self) -> None:
        """Return when all that was confirmed has come."""
        while not self.track.is_drained:
            await self._taken.wait()

    def settle(self, now_s: float, patience_s: float) -> None:
        """What was confirmed so long ago must have come."""
        if lost := self.track.settle(now_s, patience_s):
            self._tell(f"lost: {lost[:20]}")

    async def _take(
        self, consumer: geminga.Consumer[bytes], messages: Sequence[geminga.Message[bytes]]
    ) -> None:
        self._taken.set()
        self._taken = trio.Event()
        now = trio.current_time()
        done = []
        for message in messages:
            text, due, _ = message.data.split(b" ", 2)
            number = int(text)
            key = message.partition_key if self.shape.by_key else message.topic_name
            if (newest := self.track.come(number, key or "")) is not None:
                self._tell(
                    f"{number} at {message.message_id} of {key} came behind {newest},"
                    f" {message.redelivery_count} redeliveries, consumer {consumer.consumer_name}"
                )
            if self.shape.deduplicated:
                self._look_for_twins(number, message.message_id)
            if message.redelivery_count == 0 and not self.shape.deliver_after_s:
                self._figures.arrive_s.append(now - float(due))
            refused = number % REFUSED_EACH == 7 and message.redelivery_count == 0
            if refused and self.shape.consumer_type == geminga.ConsumerType.SHARED:
                consumer.negative_acknowledge(message)
            else:
                done.append(message)
        if not done:
            return
        if self.shape.consumer_type.is_shared:
            await consumer.acknowledge_all(done)
            return
        for message in {each.topic_name: each for each in done}.values():
            await consumer.acknowledge_cumulative(message)

    def _tell(self, what: str) -> None:
        """A line for whoever looks for the reason; not for ever."""
        if self._told < _TOLD_MAX:
            self._told += 1
            print(
                f"{trio.current_time():.3f} {self.shape.name}: {what}", file=sys.stderr, flush=True
            )

    def _look_for_twins(self, number: int, place: geminga.MessageId) -> None:
        """A number that stands at two places of a deduplicated log was written twice."""
        if self._places.setdefault(number, place) != place:
            self.track.counts["twice"] += 1
            self._tell(f"{number} stands at {self._places[number]} and {place}")
        self._recent.append(number)
        if len(self._recent) > _LAST_PLACES:
            self._places.pop(self._recent.popleft(), None)

    async def _guarded(self, where: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except OWN_ERRORS as error:
            self._figures.error(f"{self.shape.name} {where}", error)


@asynccontextmanager
async def counted(figures: Figures, where: str, stop: trio.Event) -> AsyncIterator[None]:
    """What fails within is counted; a little pause follows."""
    try:
        yield
    except OWN_ERRORS as error:
        if not stop.is_set():
            figures.error(where, error)
            await trio.sleep(1)


async def catch_up(
    client: geminga.Client, topic: str, figures: Figures, stop: trio.Event, each_s: float
) -> None:
    """A reader that begins at what retention has kept, and reads to the end."""
    while not stop.is_set():
        await trio.sleep(each_s)
        async with counted(figures, "catch up", stop):
            with trio.fail_after(120):
                async with client.create_reader(topic, geminga.EARLIEST) as reader:
                    while await reader.has_message_available() and not stop.is_set():
                        for entry in await reader.read_batches(timeout_s=30):
                            figures.counts["read again"] += len(entry.indexes)


async def come_and_go(
    client: geminga.Client,
    admin: geminga.admin.AdminClient,
    namespace: str,
    figures: Figures,
    stop: trio.Event,
) -> None:
    """Topics that are made, used and deleted, one a second."""
    number = 0
    while not stop.is_set():
        await trio.sleep(1)
        topic = f"persistent://{namespace}/passing-{number % 50}"
        number += 1
        async with counted(figures, "come and go", stop):
            with trio.fail_after(60):
                async with (
                    client.subscribe(topic, "s") as consumer,
                    client.create_producer(topic) as producer,
                ):
                    for _ in range(5):
                        await producer.send(b"passing")
                    for _ in range(5):
                        await consumer.acknowledge(await consumer.receive(30))
                await admin.topics.delete(topic, force=True)
            figures.counts["passing topics"] += 1


async def compacted(
    client: geminga.Client,
    admin: geminga.admin.AdminClient,
    namespace: str,
    figures: Figures,
    stop: trio.Event,
    each_s: float,
) -> None:
    """Keys with values that only grow, compacted and read: each must have its last known value."""
    topic = f"persistent://{namespace}/table"
    known: dict[str, int] = {}
    value = 0
    while not stop.is_set():
        async with counted(figures, "table", stop):
            async with client.create_producer(topic) as producer:
                ends = trio.current_time() + each_s
                while trio.current_time() < ends and not stop.is_set():
                    value += 1
                    key = f"k{value % 100}"
                    await producer.send(b"%d" % value, partition_key=key)
                    known[key] = value
                    await trio.sleep(0.05)
            await admin.topics.compact(topic)
            before = dict(known)
            found: dict[str, int] = {}
            with trio.fail_after(120):
                async with client.create_reader(
                    topic, geminga.EARLIEST, read_compacted=True
                ) as reader:
                    while await reader.has_message_available():
                        message = await reader.read_next(60)
                        found[message.partition_key or ""] = int(message.data)
            figures.counts["tables"] += 1
            figures.counts["stale"] += sum(found.get(key, -1) < at for key, at in before.items())


async def scrape(web_url: str, figures: Figures, stop: trio.Event, each_s: float) -> None:
    """What a monitoring system does."""
    paths = ("/metrics/", "/admin/v2/brokers/health", "/admin/v2/persistent/soak/load/shared/stats")
    while not stop.is_set():
        await trio.sleep(each_s)
        for path in paths:
            async with counted(figures, f"GET {path}", stop):
                began = trio.current_time()
                await trio.to_thread.run_sync(_get, web_url + path, abandon_on_cancel=True)
                figures.rest_s.append(trio.current_time() - began)


def _get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return len(answer.read())

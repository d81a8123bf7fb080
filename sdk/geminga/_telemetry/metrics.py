"""Metrics under the names of the Java client (spec SDK-49; PIP-342, InstrumentProvider,
ProducerImpl, ConsumerImpl, ClientCnx, MemoryBufferStats).

Nearly all are read from the counters that statistics have, when a reader collects; only durations
are recorded as they happen. Attributes are those that Java's client has by default: the namespace,
not the topic.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import trio
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from geminga._connection.pool import ConnectionPool
from geminga._connection.statistics import Counts
from geminga._consuming.statistics import MeasuredPart
from geminga.errors import GemingaError
from geminga_protocol.topic_name import TopicName

logger = logging.getLogger("geminga")

WAIT_S = 0.2
"""How long a reader in another thread waits for the loop; then it gets the values before."""
FRESH_S = 0.05
"""Values of this age are good enough for the next instrument of the same collection."""
BUCKETS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)

Attributes = tuple[tuple[str, str], ...]
Values = defaultdict[tuple[str, Attributes], int]


class Instrument(NamedTuple):
    """A name after `pulsar.client.`; `falls`: it is no total."""

    name: str
    unit: str
    description: str
    falls: bool = False


INSTRUMENTS = tuple(
    each._replace(name=f"pulsar.client.{each.name}")
    for each in (
        Instrument("connection.opened", "{connection}", "Connections opened"),
        Instrument("connection.closed", "{connection}", "Connections closed"),
        Instrument("connection.failed", "{connection}", "Attempts to connect that failed"),
        Instrument("memory.buffer.usage", "By", "Memory of pending messages", True),
        Instrument("memory.buffer.limit", "By", "Bound of that memory", True),
        Instrument("producer.opened", "{session}", "Producers opened"),
        Instrument("producer.closed", "{session}", "Producers closed"),
        Instrument("producer.message.send.size", "By", "Bytes published"),
        Instrument("producer.message.pending.count", "{message}", "Messages without receipt", True),
        Instrument("producer.message.pending.size", "By", "Bytes without receipt", True),
        Instrument("consumer.opened", "{session}", "Consumers opened"),
        Instrument("consumer.closed", "{session}", "Consumers closed"),
        Instrument("consumer.message.received.count", "{message}", "Messages the program took"),
        Instrument("consumer.message.received.size", "By", "Bytes the program took"),
        Instrument("consumer.receive_queue.count", "{message}", "Messages in the queue", True),
        Instrument("consumer.receive_queue.size", "By", "Bytes in the queue", True),
        Instrument("consumer.message.ack", "{message}", "Messages acknowledged"),
        Instrument("consumer.message.nack", "{message}", "Messages negatively acknowledged"),
        Instrument("consumer.message.ack.timeout", "{message}", "Messages without ack in time"),
        Instrument("consumer.message.dlq", "{message}", "Messages sent to dead-letter topics"),
    )
)
_FALLING = frozenset(each.name for each in INSTRUMENTS if each.falls)


class Pending(Protocol):
    """A producer's messages without receipt."""

    @property
    def pending_messages(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...


class ProducerPart(Protocol):
    """A partition's producer."""

    topic: str
    counts: Counts

    @property
    def outbox(self) -> Pending: ...


class Memory(Protocol):
    """The memory of pending messages."""

    used_bytes: int
    limit_bytes: int


def attributes_of(topic: str, *more: tuple[str, str]) -> Attributes:
    """Those of a topic's measurements."""
    name = TopicName.parse(topic)
    return (
        ("pulsar.tenant", name.tenant),
        ("pulsar.namespace", name.namespace),
        *more,
    )


def _of_producer(part: ProducerPart) -> Iterator[tuple[str, int]]:
    yield "message.send.size", part.counts.size_bytes
    yield "message.pending.count", part.outbox.pending_messages
    yield "message.pending.size", part.outbox.pending_bytes


def _of_consumer(part: MeasuredPart) -> Iterator[tuple[str, int]]:
    found = part.statistics
    yield "message.received.count", found.total_msgs_received
    yield "message.received.size", found.total_bytes_received
    yield "receive_queue.count", found.msg_num_in_receiver_queue
    yield "receive_queue.size", part.waiting_bytes
    yield "message.ack", found.total_acks_sent
    yield "message.nack", part.counts.refused
    yield "message.ack.timeout", part.counts.timed_out
    yield "message.dlq", part.counts.dead_letters


class _Source:
    """The partitions of one producer or consumer, also those that it has no more."""

    def __init__(
        self,
        kind: str,
        listed: Callable[[], Iterable[tuple[object, Attributes, Iterable[tuple[str, int]]]]],
    ) -> None:
        self._prefix = f"pulsar.client.{kind}."
        self._listed = listed
        self._last: dict[object, list[tuple[str, Attributes, int]]] = {}
        self._gone: Values = defaultdict(int)

    def read(self, into: Values) -> None:
        """Add the values."""
        now: dict[object, list[tuple[str, Attributes, int]]] = {}
        for part, attributes, found in self._listed():
            own = [(self._prefix + name, attributes, value) for name, value in found]
            own.append((f"{self._prefix}opened", attributes, 1))
            own.append((f"{self._prefix}closed", attributes, 0))
            now[part] = own
        for part in self._last.keys() - now.keys():
            self._leave(self._last[part])
        self._last = now
        for own in now.values():
            for name, attributes, value in own:
                into[name, attributes] += value
        for key, value in self._gone.items():
            into[key] += value

    def _leave(self, own: list[tuple[str, Attributes, int]]) -> None:
        for name, attributes, value in own:
            is_end = name == f"{self._prefix}closed"
            self._gone[name, attributes] += 1 if is_end else 0 if name in _FALLING else value

    def close(self) -> Values:
        """The totals that stay."""
        self.read(defaultdict(int))
        for own in self._last.values():
            self._leave(own)
        return self._gone


class Registry:
    """The instruments of one provider, over all clients that have it: OpenTelemetry calls what
    observes an instrument that was made first, and ignores others of the same name.
    """

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("geminga")
        self.clients: dict[ClientMetrics, None] = {}
        self._totals: Values = defaultdict(int)
        self._lock = threading.Lock()
        for each in INSTRUMENTS:
            observe = [partial(self._observe, each.name)]
            if each.falls:
                meter.create_observable_up_down_counter(
                    each.name, observe, each.unit, each.description
                )
            else:
                meter.create_observable_counter(each.name, observe, each.unit, each.description)
        self.send_duration = meter.create_histogram(
            "pulsar.client.producer.message.send.duration",
            "s",
            "From sending to the receipt, with the time in a batch",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self.rpc_duration = meter.create_histogram(
            "pulsar.client.producer.rpc.send.duration",
            "s",
            "From writing an entry to its receipt",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self.lookup_duration = meter.create_histogram(
            "pulsar.client.lookup.duration",
            "s",
            "Lookups of topics, partitions, schemas and lists",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )

    def _observe(self, name: str, options: CallbackOptions) -> list[Observation]:
        clients = list(self.clients)
        for client in clients:
            client.refresh()
        found: defaultdict[Attributes, int] = defaultdict(int)
        with self._lock:
            for values in (self._totals, *(client.values for client in self.clients)):
                for (measured, attributes), value in values.items():
                    if measured == name:
                        found[attributes] += value
        return [Observation(value, dict(attributes)) for attributes, value in found.items()]

    def leave(self, client: ClientMetrics, totals: Values) -> None:
        """A client is closed; its totals stay."""
        with self._lock:
            if self.clients.pop(client, client) is None:
                for key, value in totals.items():
                    self._totals[key] += value


_registries: weakref.WeakKeyDictionary[MeterProvider, Registry] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def registry_of(provider: MeterProvider) -> Registry:
    """The provider's one registry."""
    with _making:
        found = _registries.get(provider)
        if found is None:
            found = _registries[provider] = Registry(provider)
        return found


class Sends:
    """The durations of one topic's sends. As in Java each message counts, all of an entry with the
    time of its first one; and each entry, from its first writing on.
    """

    def __init__(self, registry: Registry, topic: str) -> None:
        self._messages = registry.send_duration.record
        self._rpcs = registry.rpc_duration.record
        self._attributes = {
            failed: dict(attributes_of(topic, ("pulsar.response.status", status)))
            for failed, status in ((False, "success"), (True, "failed"))
        }

    def messages(self, latency_s: float, count: int, *, failed: bool) -> None:
        """An entry's messages are settled."""
        for _ in range(count):
            self._messages(latency_s, self._attributes[failed])

    def rpc(self, latency_s: float, *, failed: bool) -> None:
        """An entry is settled."""
        self._rpcs(latency_s, self._attributes[failed])


class ClientMetrics:
    """The metrics of one client. Values are read in its loop; a reader in another thread waits for
    that at most WAIT_S.
    """

    def __init__(self, provider: MeterProvider, pool: ConnectionPool, memory: Memory) -> None:
        self._pool = pool
        self._memory = memory
        self._sources: dict[object, _Source] = {}
        self._gone: Values = defaultdict(int)
        self._thread = threading.get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._read_at_s = 0.0
        self.values: Values = defaultdict(int)
        self._registry = registry_of(provider)
        self._registry.clients[self] = None

    # ---- what is measured ----

    def add_producer(self, key: object, parts: Callable[[], Iterable[ProducerPart]]) -> None:
        """Measure a producer's partitions, until `remove`."""
        self._sources[key] = _Source(
            "producer",
            lambda: [(each, attributes_of(each.topic), _of_producer(each)) for each in parts()],
        )

    def add_consumer(
        self, key: object, parts: Callable[[], Iterable[MeasuredPart]], subscription: str
    ) -> None:
        """Measure a consumer's topics and partitions, until `remove`."""
        more = ("pulsar.subscription", subscription)
        self._sources[key] = _Source(
            "consumer",
            lambda: [
                (each.key, attributes_of(each.topic, more), _of_consumer(each)) for each in parts()
            ],
        )

    def remove(self, key: object) -> None:
        """The producer or consumer is closed; its totals stay."""
        source = self._sources.pop(key, None)
        if source is not None:
            for found, value in source.close().items():
                self._gone[found] += value

    def sends(self, topic: str) -> Sends:
        """What records the durations of a topic's sends."""
        return Sends(self._registry, topic)

    @contextmanager
    def lookup(self, kind: str, transport: str = "binary") -> Iterator[None]:
        """Record how long a lookup takes."""
        began_s = trio.current_time()
        status = ""
        try:
            yield
            status = "success"
        except GemingaError:
            status = "failed"
            raise
        finally:
            if status:  # not cancelled
                self._registry.lookup_duration.record(
                    trio.current_time() - began_s,
                    {
                        "pulsar.lookup.type": kind,
                        "pulsar.lookup.transport-type": transport,
                        "pulsar.response.status": status,
                    },
                )

    # ---- reading ----

    def refresh(self) -> None:
        """Bring `values` up to date, from any thread."""
        if threading.get_ident() == self._thread:
            self._read()
        elif time.monotonic() - self._read_at_s > FRESH_S:
            done = threading.Event()
            try:
                self._token.run_sync_soon(self._read_and_tell, done)
            except trio.RunFinishedError:
                return
            done.wait(WAIT_S)

    def _read_and_tell(self, done: threading.Event) -> None:
        try:
            self._read()
        except Exception:
            logger.exception("the client's metrics could not be read")
        finally:
            done.set()

    def _read(self) -> None:
        pool = self._pool
        found: Values = defaultdict(int, self._gone)
        found["pulsar.client.connection.opened", ()] = pool.opened
        found["pulsar.client.connection.closed", ()] = pool.opened - len(pool.connections)
        for kind, failures in pool.failures.items():
            key = "pulsar.client.connection.failed", (("pulsar.failure.type", kind),)
            found[key] = failures
        found["pulsar.client.memory.buffer.usage", ()] = self._memory.used_bytes
        found["pulsar.client.memory.buffer.limit", ()] = self._memory.limit_bytes
        for source in self._sources.values():
            source.read(found)
        self.values = found
        self._read_at_s = time.monotonic()

    def close(self) -> None:
        """The client is closed. In its loop."""
        for key in list(self._sources):
            self.remove(key)
        self._read()
        totals: Values = defaultdict(int)
        for (name, attributes), value in self.values.items():
            totals[name, attributes] = 0 if name in _FALLING else value
        self._registry.leave(self, totals)

    def forget(self) -> None:
        """In a forked child: its parent tells of the client."""
        self._registry.clients.pop(self, None)

"""Topics with messages of all kinds, and records of all published ones: an oracle for tests."""

from __future__ import annotations

import random
import uuid
from bisect import bisect_left
from typing import Any, NamedTuple

import geminga
import geminga.blocking
from geminga.schema import AlreadyEncoded, SchemaInfo, SchemaType
from pyspark_pulsar._positions import Position
from pyspark_pulsar._tests.admin import ask, path_of
from pyspark_pulsar._tests.broker import KEEPING, SMALL_LEDGERS

MESSAGE_BYTES_MAX = 16 * 1024
"""The broker's `maxMessageSize`: larger messages come in chunks."""
SETTINGS = {
    **SMALL_LEDGERS,
    **KEEPING,
    "maxMessageSize": str(MESSAGE_BYTES_MAX),
    "brokerDeduplicationEnabled": "true",
}
THRIFTY = "public/thrifty"
"""A namespace whose topics keep nothing that nobody waits for."""
_COMPRESSIONS = list(geminga.CompressionType)
_BYTES = SchemaInfo("", SchemaType.BYTES)


class Sent(NamedTuple):
    """A message as it was published."""

    position: Position
    value: bytes | None
    key: str | None


class World:
    """One topic, partitioned or not, and all that was published to it."""

    def __init__(
        self,
        web_url: str,
        client: geminga.blocking.Client,
        rng: random.Random,
        namespace: str,
        *,
        partitions: int | None = None,
    ) -> None:
        self._web_url = web_url
        self._client = client
        self._rng = rng
        self._number = 0
        self.name = f"persistent://{namespace}/w{uuid.uuid4().hex[:8]}"
        self.partitions = rng.choice([0, 0, 1, 2, 3]) if partitions is None else partitions
        self.books: dict[str, list[Sent]] = {}
        path = path_of(self.name)
        if self.partitions:
            self._ask("PUT", f"{path}/partitions", self.partitions)
        else:
            self._ask("PUT", path)
        self._open_books()

    def _open_books(self) -> None:
        names = [f"{self.name}-partition-{n}" for n in range(self.partitions)] or [self.name]
        for name in names:
            self.books.setdefault(name, [])

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        return ask(self._web_url, method, path, body)

    # ---- events of the topic ----

    def publish(self, topic: str | None = None) -> None:
        """Some messages of one or two kinds to one partition."""
        topic = topic or self._rng.choice(list(self.books))
        kind = self._rng.choice(["single", "batches", "batches", "chunks", "mixed"])
        found = getattr(self, f"_{kind}")(topic)
        self.books[topic] = sorted(self.books[topic] + found, key=lambda sent: sent.position)

    def publish_one(self, topic: str) -> None:
        """One message, so that the ledger that is written has something."""
        self.books[topic] += self._send(topic, 1, is_batched=False)

    def _message(self, size: int) -> tuple[bytes | None, str | None]:
        self._number += 1
        rng = self._rng
        key = rng.choice([None, None, f"k{self._number % 5}"])
        if rng.random() < 0.1:
            return None, key
        return b"%d " % self._number + rng.randbytes(4) * (size // 4), key

    def _single(self, topic: str) -> list[Sent]:
        return self._send(topic, self._rng.randint(1, 12), is_batched=False)

    def _batches(self, topic: str) -> list[Sent]:
        return self._send(topic, self._rng.randint(1, 60), is_batched=True)

    def _send(self, topic: str, count: int, *, is_batched: bool) -> list[Sent]:
        rng = self._rng
        with self._client.create_producer(
            topic,
            schema=AlreadyEncoded(_BYTES),
            batching_enabled=is_batched,
            batching_max_messages=rng.randint(2, 12),
            batching_max_publish_delay_s=60.0,
            compression_type=rng.choice(_COMPRESSIONS),
        ) as producer:
            found = []
            left = count
            while left:
                # Full ledgers are closed between flushes.
                run = min(left, rng.randint(1, 20))
                left -= run
                messages = [self._message(rng.choice([0, 40, 700])) for _ in range(run)]
                receipts = [producer.submit(v, partition_key=k) for v, k in messages]
                producer.flush()
                ids = [receipt.wait() for receipt in receipts]
                found += [_sent(id_, *told) for id_, told in zip(ids, messages, strict=True)]
        return found

    def _chunks(self, topic: str) -> list[Sent]:
        """Messages of several producers at once, whose chunks are mixed."""
        rng = self._rng
        producers = [
            self._client.create_producer(
                topic, schema=AlreadyEncoded(_BYTES), batching_enabled=False, chunking_enabled=True,
                compression_type=rng.choice([geminga.CompressionType.NONE] * 2 + _COMPRESSIONS),
            )
            for _ in range(rng.randint(1, 3))
        ]  # fmt: skip
        waiting = []
        for _ in range(rng.randint(1, 4)):
            for producer in producers:
                told = self._message(rng.choice([10, MESSAGE_BYTES_MAX, 3 * MESSAGE_BYTES_MAX]))
                waiting.append((producer.submit(told[0], partition_key=told[1]), told))
        found = [_sent(receipt.wait(), *told) for receipt, told in waiting]
        for producer in producers:
            producer.close()
        return found

    def _mixed(self, topic: str) -> list[Sent]:
        return self._batches(topic) + self._chunks(topic) + self._single(topic)

    def unload(self) -> None:
        """The broker lets a partition go, and loads it again."""
        self._ask("PUT", path_of(self._rng.choice(list(self.books))) + "/unload")

    def grow(self) -> None:
        """A partition more."""
        if self.partitions:
            self.partitions += 1
            self._ask("POST", path_of(self.name) + "/partitions", self.partitions)
            self._open_books()

    def ledgers(self, topic: str) -> set[int]:
        """Ledgers that a partition has at this moment."""
        stats = self._ask("GET", path_of(topic) + "/internalStats")
        return {int(each["ledgerId"]) for each in stats["ledgers"]}

    # ---- the oracle ----

    def between(self, topic: str, start: Position, stop: Position) -> list[Sent]:
        """The messages between two positions, both included."""
        book = self.books[topic]
        first = bisect_left(book, tuple(start), key=lambda sent: _whole(sent.position))
        return [sent for sent in book[first:] if _whole(sent.position) <= stop.reach]


def _whole(position: Position) -> tuple[int, int, int]:
    return position.ledger_id, position.entry_id, max(position.batch_index, 0)


def _sent(id_: geminga.MessageId, value: bytes | None, key: str | None) -> Sent:
    return Sent(Position(id_.ledger_id, id_.entry_id, id_.batch_index), value, key)


def make_thrifty(web_url: str) -> None:
    """Have the namespace THRIFTY."""
    ask(web_url, "PUT", f"namespaces/{THRIFTY}", {})
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    ask(web_url, "POST", f"namespaces/{THRIFTY}/retention", nothing)

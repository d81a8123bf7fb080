"""The connector whole, by random worlds: whatever happens to a topic, each message is read once, in
order, and nothing is lost untold. `GEMINGA_WHOLE_SEEDS=200` runs more seeds, `GEMINGA_WHOLE_FIRST`
tells the first; a failure names its own.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

import geminga.blocking
import geminga.testing
from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._batch import PulsarBatchReader
from pyspark_pulsar._clients import close_clients
from pyspark_pulsar._offsets import BEGIN, Position
from pyspark_pulsar._tests.query import STEPS, Died, Query, Row, rows_of
from pyspark_pulsar._tests.world import SETTINGS, THRIFTY, Sent, World, make_thrifty

FIRST = int(os.environ.get("GEMINGA_WHOLE_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("GEMINGA_WHOLE_SEEDS", "4")))
STEPS_MAX = 400


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker(SETTINGS) as found:
        try:
            make_thrifty(found.web_url)
            yield found
        finally:
            close_clients()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[geminga.blocking.Client]:
    with geminga.blocking.connect(url) as found:
        yield found


def reading(rng: random.Random, url: geminga.testing.BrokerUrl, topic: str) -> dict[str, str]:
    """Options of a read that must not change what is read."""
    found = {"service.url": str(url), "topic": topic, "pollTimeoutMs": "20000"}
    for name, values in (
        ("minPartitions", ["1", "2", "5", "17"]),
        ("maxRowsPerBatch", ["1", "7", "100"]),
        ("maxBytesPerBatch", ["1024", "20000"]),
        ("pulsar.reader.receiverQueueSize", ["1", "3", "50"]),
        ("admin.url", [url.web_url]),
    ):
        if rng.random() < 0.4:
            found[name] = rng.choice(values)
    return found


def seen(rows: list[Row], topic: str) -> list[Sent]:
    return [
        Sent(Position.parse(str(row["__messageId"])), row["value"], row["__key"])  # type: ignore[arg-type]
        for row in rows
        if row["__topic"] == topic
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_has_each_message_once(
    seed: int, url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    rng = random.Random(f"stream {seed}")
    is_thrifty = rng.random() < 0.4
    world = World(url.web_url, client, rng, THRIFTY if is_thrifty else "public/default")
    start = rng.choice(["earliest", "latest"])
    options = {**reading(rng, url, world.name), "startingOffsets": start}
    if rng.random() < 0.5:
        options["maxMessagesPerTrigger"] = str(rng.choice([1, 5, 23, 200]))
    if rng.random() < 0.3:
        options["maxBytesPerTrigger"] = str(rng.choice([1, 3000, 100_000]))
    if not is_thrifty:
        for _ in range(rng.randint(0, 6)):
            world.publish()
        options["anchor"] = rng.choice(["true", "false"])
    query = Query(options, rng)
    for _ in range(rng.randint(3, 12)):
        for _ in range(rng.randint(0, 2)):
            action = rng.choice(["publish", "publish", "publish", "unload", "grow"])
            if is_thrifty and (query.first is None or action == "grow"):
                # What comes before the query's subscription is nobody's.
                continue
            getattr(world, action)()
        if rng.random() < 0.2:
            query.die()
        try:
            query.step(rng.choice([*STEPS, None, None, None, None, None]))
        except Died:
            pass
    finish(query, rng)
    first = {} if query.first is None else json.loads(query.first)
    rows = [row for each in query.rows for row in each]
    for topic, book in world.books.items():
        begin = Position.parse(str(first.get(topic, "-1:-1")))
        wanted = book if begin == BEGIN else world.between(topic, begin.after, Position(1 << 62, 0))
        compare(seen(rows, topic), wanted, f"{topic} {query.options}")


def finish(query: Query, rng: random.Random) -> None:
    if rng.random() < 0.3:
        query.die()
        query.prepare_available_now()
    for _ in range(STEPS_MAX * 10):
        if not query.step():
            return
    raise AssertionError("the query does not end")


def compare(found: list[Sent], wanted: list[Sent], about: str) -> None:
    """Tells in few words what is wrong."""
    if found == wanted:
        return
    counts = Counter(sent.position for sent in found)
    order = [str(sent.position) for sent in found if sent in wanted]
    twice = [str(at) for at, count in counts.items() if count > 1]
    missing = [str(sent.position) for sent in wanted if sent not in found]
    surplus = [str(sent.position) for sent in found if sent not in wanted]
    raise AssertionError(f"{about}: {twice=} {missing=} {surplus=} {order=}")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_has_what_lies_between(
    seed: int, url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    rng = random.Random(f"batch {seed}")
    world = World(url.web_url, client, rng, "public/default")
    for _ in range(rng.randint(0, 10)):
        rng.choice([world.publish] * 4 + [world.unload, world.grow])()
    for _ in range(3):
        options = reading(rng, url, world.name)
        ends = {}
        starts: dict[str, str] = {}
        stops: dict[str, str] = {}
        for topic, book in world.books.items():
            if not book:
                ends[topic] = []
                continue
            first, last = sorted((rng.randrange(len(book)), rng.randrange(len(book))))
            begin, end = book[first].position, book[last].position
            if rng.random() < 0.3:
                begin = begin.entry
            if rng.random() < 0.3:
                end = end.entry
            if rng.random() < 0.7:
                starts[topic] = str(begin)
            else:
                begin = BEGIN
            if rng.random() < 0.7:
                stops[topic] = str(end)
            else:
                end = book[-1].position.entry
            ends[topic] = world.between(topic, begin, end)
        for name, told, rest in (
            ("startingOffsets", starts, "earliest"),
            ("endingOffsets", stops, "latest"),
        ):
            if told:
                every = {t: told.get(t, rest) for t in world.books}
                options[name] = json.dumps(every)
        source = PulsarDataSource(dict(options))
        reader = source.reader(source.schema())
        assert isinstance(reader, PulsarBatchReader)
        parts = list(reader.partitions())
        rng.shuffle(parts)
        by_part = {}
        for part in parts:
            rows = rows_of(reader.read(part), int(options.get("maxRowsPerBatch", "10000")))
            by_part[part.value] = rows
        rows = (
            [
                row
                for value in sorted(by_part, key=lambda each: (each.topic, each.start))
                for row in by_part[value]
            ]
            if parts and parts[0].value is not None
            else []
        )
        for topic, wanted in ends.items():
            compare(seen(rows, topic), wanted, f"{topic} {options}")

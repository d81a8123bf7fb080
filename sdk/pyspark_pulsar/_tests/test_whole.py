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
from contextlib import suppress

import pytest

import geminga.blocking
import geminga.testing
from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._clients import close_clients
from pyspark_pulsar._positions import BEGIN, Position
from pyspark_pulsar._scan._batch import PulsarBatchReader
from pyspark_pulsar._tests.query import STEPS, Died, Query, Row, rows_of
from pyspark_pulsar._tests.world import SETTINGS, THRIFTY, Sent, World, make_thrifty
from pyspark_pulsar.errors import DataLoss

FIRST = int(os.environ.get("GEMINGA_WHOLE_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("GEMINGA_WHOLE_SEEDS", "8")))
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
    """Options that must not change the messages of a read."""
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
        Sent(Position.parse(str(row["__messageId"])), row["value"], row["__key"])
        for row in rows
        if row["__topic"] == topic
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_has_each_message_once(
    seed: int, url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    rng = random.Random(f"stream {seed}")
    is_thrifty = rng.random() < 0.4
    world = World(url.web_url, client, rng, THRIFTY if is_thrifty else "public/default")
    options = {**reading(rng, url, world.name), **limits(rng)}
    options["startingOffsets"] = rng.choice(["earliest", "latest"])
    if not is_thrifty and rng.random() < 0.3:
        options["topicsPattern"] = options.pop("topic") + ".*"
        options["discoveryIntervalMs"] = "1"
    if not is_thrifty:
        for _ in range(rng.randint(0, 6)):
            world.publish()
        options["anchor"] = rng.choice(["true", "false"])
    query = Query(options, rng)
    for _ in range(rng.randint(3, 12)):
        for _ in range(rng.randint(0, 2)):
            action = rng.choice(["publish", "publish", "publish", "unload", "grow"])
            if is_thrifty and (query.first is None or action == "grow"):
                # Messages before the query's subscription may be lost.
                continue
            getattr(world, action)()
        if rng.random() < 0.2:
            query.die()
        with suppress(Died):
            query.step(rng.choice([*STEPS, None, None, None, None, None]))
    finish(query, rng)
    for topic in world.books:
        compare(seen(query.every_row, topic), published(world, query, topic), f"{topic} {options}")
    most = int(options.get("maxMessagesPerTrigger", "1000000"))
    assert all(len(rows) <= most for rows in query.rows)


def check_alarm(world: World, query: Query, error: DataLoss) -> None:
    """As long as the ledger of the last message that was read is there, nothing can be lost."""
    at = Position.parse(query.position(error.topic))
    assert at.ledger_id not in world.ledgers(error.topic), f"a false alarm: {error}"


def limits(rng: random.Random) -> dict[str, str]:
    """Of micro-batches."""
    found = {}
    if rng.random() < 0.5:
        found["maxMessagesPerTrigger"] = str(rng.choice([1, 5, 23, 200]))
    if rng.random() < 0.3:
        found["maxBytesPerTrigger"] = str(rng.choice([1, 3000, 100_000]))
    return found


def published(world: World, query: Query, topic: str) -> list[Sent]:
    """The messages after a query's start."""
    first = {} if query.first is None else json.loads(query.first)
    begin = Position.parse(str(first.get(topic, "-1:-1")))
    if begin == BEGIN:
        return world.books[topic]
    return world.between(topic, begin.after, Position(1 << 62, 0))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_losses_are_reported(
    seed: int,
    url: geminga.testing.BrokerUrl,
    client: geminga.blocking.Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No cursor retains the messages, and the topic has no retention of full ledgers."""
    rng = random.Random(f"loss {seed}")
    world = World(url.web_url, client, rng, THRIFTY)
    fails = rng.random() < 0.5
    options = {
        **reading(rng, url, world.name), **limits(rng),
        "anchor": "false", "failOnDataLoss": str(fails), "startingOffsets": "latest",
    }  # fmt: skip
    for topic in world.books:
        world.publish(topic)
    query = Query(options, rng)
    is_told = False
    try:
        query.step()
        for _ in range(rng.randint(1, 6)):
            for _ in range(rng.randint(0, 3)):
                rng.choice([world.publish, world.publish, world.unload])()
            if rng.random() < 0.3:
                query.die()
            query.step()
        # An empty topic's former messages are unknown: the next message reports the loss.
        for topic in world.books:
            world.publish_one(topic)
        finish(query, rng)
    except DataLoss as error:
        assert fails
        is_told = True
        check_alarm(world, query, error)
    is_told = is_told or any("pyspark_pulsar" in each.name for each in caplog.records)
    for topic in world.books:
        found, wanted = seen(query.every_row, topic), published(world, query, topic)
        if is_told:
            wanted = [sent for sent in wanted if sent in found]
        compare(found, wanted, f"{topic} {options}")


def finish(query: Query, rng: random.Random) -> None:
    if rng.random() < 0.3:
        query.die()
        query.prepare_available_now()
    for _ in range(STEPS_MAX * 10):
        if not query.step():
            return
    raise AssertionError("the query does not end")


def compare(found: list[Sent], wanted: list[Sent], about: str) -> None:
    """A short text of the difference."""
    if found == wanted:
        return
    counts = Counter(sent.position for sent in found)
    order = [str(sent.position) for sent in found if sent in wanted]
    twice = [str(at) for at, count in counts.items() if count > 1]
    missing = [str(sent.position) for sent in wanted if sent not in found]
    surplus = [str(sent.position) for sent in found if sent not in wanted]
    raise AssertionError(f"{about}: {twice=} {missing=} {surplus=} {order=}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_a_batch_has_all_messages_between_its_ends(
    seed: int, url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    rng = random.Random(f"batch {seed}")
    world = World(url.web_url, client, rng, "public/default")
    for _ in range(rng.randint(0, 10)):
        rng.choice([world.publish] * 4 + [world.unload, world.grow])()
    for _ in range(3):
        options = reading(rng, url, world.name)
        starts: dict[str, str] = {}
        stops: dict[str, str] = {}
        wanted = {
            topic: interval(rng, world, topic, starts, stops) if book else []
            for topic, book in world.books.items()
        }
        options["startingOffsets"] = json.dumps({t: starts.get(t, "earliest") for t in wanted})
        options["endingOffsets"] = json.dumps({t: stops.get(t, "latest") for t in wanted})
        rows = batch_rows(options, rng)
        for topic, messages in wanted.items():
            compare(seen(rows, topic), messages, f"{topic} {options}")


def interval(
    rng: random.Random, world: World, topic: str, starts: dict[str, str], stops: dict[str, str]
) -> list[Sent]:
    """Choose a part of a topic to read; returns its messages."""
    book = world.books[topic]
    first, last = sorted((rng.randrange(len(book)), rng.randrange(len(book))))
    begin, end = book[first].position, book[last].position
    begin = begin.entry if rng.random() < 0.3 else begin
    end = end.entry if rng.random() < 0.3 else end
    if rng.random() < 0.7:
        starts[topic] = str(begin)
    else:
        begin = BEGIN
    if rng.random() < 0.7:
        stops[topic] = str(end)
    else:
        end = book[-1].position.entry
    return world.between(topic, begin, end)


def batch_rows(options: dict[str, str], rng: random.Random) -> list[Row]:
    """The rows of Spark's tasks, run in any order; sorted by the starts of their parts."""
    source = PulsarDataSource(dict(options))
    reader = source.reader(source.schema())
    assert isinstance(reader, PulsarBatchReader)
    parts = list(reader.partitions())
    rng.shuffle(parts)
    found = [
        (part.value, rows_of(reader.read(part), int(options.get("maxRowsPerBatch", "10000"))))
        for part in parts
    ]
    found.sort(key=lambda each: (each[0].topic, each[0].start))
    return [row for _, rows in found for row in rows]

"""Writing whole, by random faults: with deduplication each row is in the topic once, in the order
of its task, whatever attempts, twins of attempts and unloads there were.
`GEMINGA_WHOLE_SEEDS` and `GEMINGA_WHOLE_FIRST` as in `test_whole`.
"""

from __future__ import annotations

import os
import pickle
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import Row, StringType, StructField, StructType

import geminga
import geminga.blocking
import geminga.testing
from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._clients import close_clients
from pyspark_pulsar._tests.world import SETTINGS, World
from pyspark_pulsar._write._identity import EPOCH, QUERY_ID
from pyspark_pulsar._write._writer import PulsarRowStreamWriter
from pyspark_pulsar.errors import ConnectorError

FIRST = int(os.environ.get("GEMINGA_WHOLE_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("GEMINGA_WHOLE_SEEDS", "8")))
PAUSE_S = 0.3
"""How long a slow attempt takes for a batch at most."""
SCHEMA = StructType([StructField("value", StringType()), StructField("__key", StringType())])


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker(SETTINGS) as found:
        yield found
        close_clients()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[geminga.blocking.Client]:
    with geminga.blocking.connect(url) as found:
        yield found


@dataclass(frozen=True)
class Context:
    """Spark's context of a task."""

    partition: int
    epoch: int

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:
        return {QUERY_ID: "q", EPOCH: str(self.epoch)}.get(name)


class Killed(Exception):
    """The task is no more."""


class Job:
    """A query's micro-batches, each with the same rows at each attempt."""

    def __init__(
        self, rng: random.Random, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._rng = rng
        self._options = options
        self.keyed = rng.random() < 0.4
        self.sizes: dict[tuple[int, int], list[int]] = {}
        self.is_under_way = threading.Event()
        self.may_go_on = threading.Event()
        self._local = threading.local()
        monkeypatch.setattr(TaskContext, "get", lambda: self._local.context)

    def rows(self, task: int, epoch: int) -> list[pa.RecordBatch]:
        """The rows of a task; their texts tell where they belong."""
        sizes = self.sizes.setdefault(
            (task, epoch), [self._rng.randint(1, 60) for _ in range(self._rng.randint(0, 5))]
        )
        found = []
        at = 0
        for size in sizes:
            names = [f"{epoch}:{task}:{n}" for n in range(at, at + size)]
            keys = [f"k{n % 7}" if self.keyed else None for n in range(at, at + size)]
            at += size
            columns = [pa.array(names), pa.array(keys, pa.string())]
            found.append(pa.RecordBatch.from_arrays(columns, ["value", "__key"]))
        return found

    def attempt(self, task: int, epoch: int, dies_at: int | None, *, slow: bool = False) -> bool:
        """One attempt; returns whether it succeeded. A `slow` one is another process's: it has a
        client of its own, and takes its time.
        """
        options = dict(self._options)
        if slow:
            options["pulsar.client.statsIntervalSeconds"] = "61"
        writer = PulsarDataSource(options).streamWriter(SCHEMA, overwrite=False)
        writer = pickle.loads(pickle.dumps(writer))

        def batches() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(self.rows(task, epoch)):
                if number == dies_at:
                    raise Killed
                yield batch
                if slow:
                    self.is_under_way.set()
                    self.may_go_on.wait(PAUSE_S)
            self.is_under_way.set()

        self._local.context = Context(task, epoch)
        try:
            if isinstance(writer, PulsarRowStreamWriter):
                # As PySpark 4.0 hands them over.
                writer.write(Row(**row) for batch in batches() for row in batch.to_pylist())
            else:
                writer.write(batches())
        except (Killed, ConnectorError):
            return False
        return True


def beside_a_twin(job: Job, world: World, rng: random.Random, task: int, epoch: int) -> bool:
    """An attempt while another one, which Spark has abandoned, continues."""
    job.is_under_way.clear()
    job.may_go_on.clear()
    twin = threading.Thread(target=job.attempt, args=(task, epoch, None), kwargs={"slow": True})
    twin.start()
    job.is_under_way.wait(10)
    unloads = [threading.Thread(target=world.unload) for _ in range(rng.randint(0, 3))]
    for each in unloads:
        each.start()
    if rng.random() < 0.5:
        job.may_go_on.set()
    done = any(job.attempt(task, epoch, None) for _ in range(3))
    job.may_go_on.set()
    for each in [twin, *unloads]:
        each.join()
    return done


def contents(client: geminga.blocking.Client, world: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for topic in world.books:
        with client.create_reader(topic, geminga.EARLIEST) as reader:
            while reader.has_message_available():
                found.setdefault(topic, []).append(reader.read_next(20).data.decode())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_written_once(
    seed: int,
    url: geminga.testing.BrokerUrl,
    client: geminga.blocking.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(f"write {seed}")
    world = World(url.web_url, client, rng, "public/default")
    options = {
        "service.url": str(url), "topic": world.name, "deduplication": "true",
        "pulsar.producer.batchingMaxMessages": str(rng.choice([1, 2, 7, 100])),
        "pulsar.producer.batchingEnabled": rng.choice(["true", "true", "false"]),
        # Two attempts may wait for each other's producers, until one of them fails.
        "producerBusyTimeoutMs": "20000",
        "pulsar.producer.sendTimeoutMs": "3000",
    }  # fmt: skip
    job = Job(rng, options, monkeypatch)
    for epoch in range(rng.randint(1, 3)):
        for task in range(rng.randint(1, 3)):
            count = len(job.rows(task, epoch))
            for _ in range(rng.randint(0, 2)):
                job.attempt(task, epoch, rng.randint(0, count))
            if rng.random() < 0.4:
                # An abandoned attempt that continues beside its successor.
                assert beside_a_twin(job, world, rng, task, epoch)
            else:
                assert job.attempt(task, epoch, None)
        if rng.random() < 0.3:
            # The driver died before its commit log was written: the same micro-batch again.
            for task, of in list(job.sizes):
                assert of != epoch or job.attempt(task, epoch, None)
    found = contents(client, world)
    every = [text for texts in found.values() for text in texts]
    wanted = [
        f"{epoch}:{task}:{n}"
        for (task, epoch), sizes in job.sizes.items()
        for n in range(sum(sizes))
    ]
    assert sorted(every) == sorted(wanted), f"{options}"
    for texts in found.values():
        for task in range(3):
            own = [tuple(map(int, t.split(":"))) for t in texts if t.split(":")[1] == str(task)]
            assert own == sorted(own), f"{options}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_no_row_is_lost_when_the_topic_grows_between_attempts(
    seed: int,
    url: geminga.testing.BrokerUrl,
    client: geminga.blocking.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows go to other partitions then, so that numbers mean other rows."""
    rng = random.Random(f"grow {seed}")
    world = World(url.web_url, client, rng, "public/default", partitions=2)
    options = {
        "service.url": str(url), "topic": world.name, "deduplication": "true",
        "pulsar.producer.batchingMaxMessages": "7",
    }  # fmt: skip
    job = Job(rng, options, monkeypatch)
    job.sizes[0, 0] = [40, 40, 40]
    assert not job.attempt(0, 0, 2)
    world.grow()
    assert job.attempt(0, 0, None)
    assert job.attempt(0, 0, None)
    every = [text for texts in contents(client, world).values() for text in texts]
    assert set(every) == {f"0:0:{n}" for n in range(120)}
    assert len(every) <= 120 + 80, "what the last attempt had to write was there"

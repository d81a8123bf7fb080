"""A streaming query as Spark drives it, without Spark: an offset log, a commit log, tasks that fail
and are tried again, drivers that die at any step.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_pulsar import PulsarDataSource
from pyspark_pulsar._stream._reader import PulsarStreamReader

Row = dict[str, object]
STEPS = ("planned", "logged", "cut", "read", "committed")
"""After which of them a driver may die."""


class Died(Exception):
    """The driver is no more."""


def rows_of(batches: Iterable[pa.RecordBatch], rows_max: int) -> list[Row]:
    """All rows; checks the bound of batches."""
    found: list[Row] = []
    for batch in batches:
        assert 0 < batch.num_rows <= rows_max
        found += batch.to_pylist()
    return found


class Query:
    """One checkpoint and its drivers and tasks. `rows` are those of each micro-batch."""

    def __init__(self, options: Mapping[str, str], rng: random.Random) -> None:
        self.options = dict(options)
        self._rng = rng
        self._offsets: list[str] = []
        self._commits = 0
        self.rows: list[list[Row]] = []
        self._reader: PulsarStreamReader | None = None
        self._schema: StructType | None = None
        self.first: str | None = None
        """The initial offset of the run that planned the first micro-batch."""

    @property
    def every_row(self) -> list[Row]:
        """Of all micro-batches."""
        return [row for rows in self.rows for row in rows]

    def position(self, topic: str) -> str:
        """The place up to which a topic was read for good."""
        last = self._offsets[self._commits - 1] if self._commits else self.first
        return str(json.loads(last or "{}")[topic])

    def _started(self) -> PulsarStreamReader:
        if self._reader is None:
            source = PulsarDataSource(dict(self.options))
            if self._schema is None:
                self._schema = source.schema()
            reader = source.streamReader(self._schema)
            assert isinstance(reader, PulsarStreamReader)
            self._reader = pickle.loads(pickle.dumps(reader))
            if len(self._offsets) > self._commits:
                # The last micro-batch may have been written in part: the same again.
                self._run(self._commits)
        assert self._reader is not None
        return self._reader

    def die(self) -> None:
        """The driver dies, the checkpoint stays."""
        self._reader = None

    def prepare_available_now(self) -> None:
        """As `Trigger.AvailableNow` does."""
        self._started().prepareForTriggerAvailableNow()

    def step(self, dies: str | None = None) -> bool:
        """One micro-batch; answers whether there was any. Raises Died after a step."""
        reader = self._started()
        start = self._offsets[-1] if self._offsets else json.dumps(reader.initialOffset())
        limit = reader.getDefaultReadLimit() if self._rng.random() < 0.8 else None
        end = json.dumps(reader.latestOffset(json.loads(start), limit))
        self._dies(dies, "planned")
        if end == start:
            return False
        if not self._offsets:
            self.first = start
        self._offsets.append(end)
        if len(self._offsets) > 1:
            reader.commit(json.loads(self._offsets[-2]))
        self._dies(dies, "logged")
        self._run(len(self._offsets) - 1, dies)
        return True

    def _dies(self, dies: str | None, step: str) -> None:
        if dies == step:
            self.die()
            raise Died

    def _run(self, number: int, dies: str | None = None) -> None:
        reader = self._reader
        assert reader is not None
        start = self._offsets[number - 1] if number else json.dumps(reader.initialOffset())
        parts = reader.partitions(json.loads(start), json.loads(self._offsets[number]))
        found: list[Row] = []
        for part in parts:
            if dies == "cut" and self._rng.random() < 0.5:
                self._dies(dies, "cut")
            if self._rng.random() < 0.2:
                self._fail(part)
            found += self._read(part)
        self._dies(dies, "cut")
        if number < len(self.rows):
            assert _by_topic(found) == _by_topic(self.rows[number]), f"micro-batch {number} changed"
        else:
            self.rows.append(found)
        self._dies(dies, "read")
        self._commits = number + 1
        self._dies(dies, "committed")

    def _copies(self, part: InputPartition) -> tuple[PulsarStreamReader, InputPartition]:
        """As a task gets them: of an unused reader."""
        source = PulsarDataSource(dict(self.options))
        assert self._schema is not None
        made: tuple[PulsarStreamReader, InputPartition] = pickle.loads(
            pickle.dumps((source.streamReader(self._schema), part))
        )
        return made

    def _read(self, part: InputPartition) -> list[Row]:
        reader, part = self._copies(part)
        return rows_of(reader.read(part), int(self.options.get("maxRowsPerBatch", "10000")))

    def _fail(self, part: InputPartition) -> None:
        """A task that is killed after its first rows."""
        reader, part = self._copies(part)
        batches = reader.read(part)
        next(iter(batches), None)
        batches.close()


def _by_topic(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["__topic"]), []).append(row)
    return found

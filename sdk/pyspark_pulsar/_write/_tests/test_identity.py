"""Names of producers and their numbers."""

from __future__ import annotations

import pytest

from pyspark_pulsar._options._write_options import EPOCH_MAX, WriteOptions, parse_write
from pyspark_pulsar._write import _identity
from pyspark_pulsar._write._identity import Identity, identity_of
from pyspark_pulsar.errors import ConnectorError

LASTING = {"deduplication": "true"}
NAMED = {**LASTING, "producerName": "p"}


class Context:
    """As Spark's tasks have it."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def partitionId(self) -> int:
        return 3

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name.rpartition(".")[2])


def options(given: dict[str, str], *, streaming: bool = False) -> WriteOptions:
    return parse_write({"service.url": "pulsar://localhost", **given}, streaming=streaming)


def within(monkeypatch: pytest.MonkeyPatch, context: Context | None) -> None:
    monkeypatch.setattr(_identity.TaskContext, "get", lambda: context)


def test_a_batch_is_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    # In foreachBatch Spark provides the query, but a micro-batch may have several writes.
    within(monkeypatch, Context(queryId="q", batchId="9"))
    assert identity_of(options(LASTING), "job") == Identity(3, 0, "spark-job-3", True)
    assert identity_of(options(NAMED), "job") == Identity(3, 0, "p-job-3", True)
    once = options({**NAMED, "deduplicationEpoch": "7"})
    assert identity_of(once, "job") == Identity(3, 7, "p-3", True)
    assert identity_of(once, "job").first_sequence_id == 7 << 32


def test_a_stream_is_its_query_and_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    within(monkeypatch, Context(queryId="q", batchId="9"))
    assert identity_of(options(LASTING, streaming=True), None) == Identity(3, 9, "spark-q-3", True)
    assert identity_of(options(NAMED, streaming=True), None) == Identity(3, 9, "p-q-3", True)
    assert (EPOCH_MAX << 32 | 0xFFFFFFFF) == (1 << 63) - 1


@pytest.mark.parametrize(
    "properties", [{}, {"queryId": "q"}, {"batchId": "1"}, {"queryId": "q", "batchId": "x"}]
)
def test_a_stream_without_sparks_properties(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    within(monkeypatch, Context(**properties))
    with pytest.raises(ConnectorError, match="option deduplication"):
        identity_of(options(LASTING, streaming=True), None)


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    within(monkeypatch, Context(queryId="q", batchId=str(1 << 31)))
    with pytest.raises(ConnectorError, match="is above"):
        identity_of(options(LASTING, streaming=True), None)
    within(monkeypatch, None)
    with pytest.raises(ConnectorError, match="in a task"):
        identity_of(options(LASTING), "job")


def test_without_deduplication_no_two_attempts_have_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    within(monkeypatch, Context())
    assert identity_of(options({}), "job") == Identity(3, 0, None, False)
    first = identity_of(options({"producerName": "p"}), "job")
    second = identity_of(options({"producerName": "p"}), "job")
    assert first.name is not None
    assert first.name.startswith("p-3-")
    assert first.name != second.name


def test_names_by_how_many_partitions_there_are() -> None:
    lasting = Identity(3, 9, "q-3", is_lasting=True)
    assert lasting.among(1) == lasting
    assert lasting.among(4) == Identity(3, 9, "q-3-of-4", is_lasting=True)
    passing = Identity(3, 9, "q-3", is_lasting=False)
    assert passing.among(4) == passing

"""Partitions of messages, beside the hashes of the SDK."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.keys import java_string_hash, murmur3_32
from pyspark_pulsar._options._write_options import Hashing, Routing
from pyspark_pulsar._write._routing import Router, java_hashes, murmur_hashes
from pyspark_pulsar.errors import SchemaMismatch

TEXTS = st.lists(st.text(max_size=30), max_size=20)


@settings(deadline=None)
@given(TEXTS)
def test_java_hashes_are_the_sdks(texts: list[str]) -> None:
    assert java_hashes(texts).tolist() == [java_string_hash(text) for text in texts]


@settings(deadline=None)
@given(TEXTS)
def test_murmur_hashes_are_the_sdks(texts: list[str]) -> None:
    assert murmur_hashes(texts).tolist() == [murmur3_32(text.encode()) for text in texts]


def router(partitions: int, run: int = 2, start: int = 0, **options: Routing | Hashing) -> Router:
    routing = options.get("routing", Routing.ROUNDROBINPARTITION)
    hashing = options.get("hashing", Hashing.JAVASTRINGHASH)
    assert isinstance(routing, Routing)
    assert isinstance(hashing, Hashing)
    return Router(partitions, routing, hashing, run, start)


def test_messages_without_key_take_turns_over_batches() -> None:
    found = router(3, start=1)
    assert found.choose(5, None, None).tolist() == [1, 1, 2, 2, 0]
    assert found.choose(2, None, None).tolist() == [0, 1]
    single = router(3, start=5, routing=Routing.SINGLEPARTITION)
    assert single.choose(3, None, None).tolist() == [2, 2, 2]


def test_the_column_goes_before_the_key_and_the_key_before_the_turn() -> None:
    keys = ["k", None, "k", None, b"k"]
    told = np.array([2, -1, -1, 0, -1])
    by_key = java_string_hash("k") % 3
    by_bytes = java_string_hash("aw==") % 3
    found = router(3, start=1).choose(5, keys, told)
    assert found.tolist() == [2, 1, by_key, 0, by_bytes]
    assert told.tolist() == [2, -1, -1, 0, -1]


def test_a_missing_partition() -> None:
    with pytest.raises(SchemaMismatch, match="column __partition: has 3, but the topic has 3"):
        router(3).choose(2, None, np.array([3, 0]))

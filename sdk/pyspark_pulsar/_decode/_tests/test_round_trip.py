"""Columns that were read can be written: columns to payloads and to columns again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from geminga.schema import Avro, Json
from pyspark_pulsar._decode import Decoder, columns_of
from pyspark_pulsar._decode._tests.samples import LEAF_DEFINITIONS, records, values
from pyspark_pulsar._encode import Encoder, Frame, Layout
from pyspark_pulsar._options import ParseMode


@st.composite
def topics(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    definition = draw(records(LEAF_DEFINITIONS, unions=False))
    return definition, draw(st.lists(values(definition), min_size=1, max_size=6))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Avro, Json])
def test_columns_to_payloads_and_back(kind: Any) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(topics())
    def check(topic: tuple[Any, list[Any]]) -> None:
        definition, some = topic
        assume("inf" not in repr(some))
        schema = kind(json.dumps(definition))
        columns = columns_of(schema.info)
        decoder = Decoder(
            [each.arrow for each in columns], lambda version: schema.info, ParseMode.FAILFAST
        )
        payloads = [schema.encode(each) for each in some]
        read = decoder.decode(payloads, [False] * len(some), None, None).columns
        frame = Frame(Layout(tuple(each.name for each in columns)), schema.info)
        batch = pa.RecordBatch.from_arrays(read, [each.name for each in columns])
        written = Encoder(frame).encode(batch).payloads
        again = decoder.decode([each or b"" for each in written], [False] * len(some), None, None)
        assert [each.to_pylist() for each in again.columns] == [each.to_pylist() for each in read]

    check()

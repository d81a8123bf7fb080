"""Nulls where there may be none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_pulsar._decode._decoder import has_required, missing

REQUIRED = pa.field("x", pa.int64(), nullable=False)
STRUCT = pa.struct([REQUIRED, pa.field("y", pa.int64())])
LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))
MAP = pa.map_(pa.string(), pa.field("value", STRUCT))


@pytest.mark.parametrize(
    ("field", "values", "wrong"),
    [
        (pa.field("a", pa.int64()), [1, None], None),
        (pa.field("a", pa.int64(), nullable=False), [1, None], [False, True]),
        (pa.field("a", STRUCT), [{"x": 1}, {"y": 1}, None], [False, True, False]),
        (pa.field("a", LIST), [[1], None, [2, None], []], [False, False, True, False]),
        (pa.field("a", MAP), [[("k", {"x": 1})], [("k", {"y": 1})], None], [False, True, False]),
        (pa.field("a", pa.list_(pa.int64())), [[None]], None),
        (pa.field("a", pa.list_(STRUCT)), [[{"x": 1}], [{"x": 2}, {}]], [False, True]),
    ],
)
def test_nulls_in_not_null_parts(field: pa.Field, values: list[Any], wrong: Any) -> None:
    assert has_required(field) == (wrong is not None)
    array = pa.array([values[0], *values], field.type).slice(1)
    if wrong is not None:
        assert missing(array, field).tolist() == wrong

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.cli.admin.output import pretty, rendered

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
@pytest.mark.slow
def test_it_is_json(value: object) -> None:
    assert json.loads(pretty(value)) == value


def test_as_jackson_writes_it() -> None:
    value = {
        "a": 1,
        "b": [1, "x"],
        "c": {"d": None, "e": 0.0},
        "f": {},
        "g": [],
        "h": [{"i": True}],
    }
    assert pretty(value) == (
        '{\n  "a" : 1,\n  "b" : [ 1, "x" ],\n  "c" : {\n    "d" : null,\n    "e" : 0.0\n  },\n'
        '  "f" : { },\n  "g" : [ ],\n  "h" : [ {\n    "i" : true\n  } ]\n}'
    )


@pytest.mark.parametrize(
    ("value", "auto", "as_json", "as_table"),
    [
        (None, "", "null", ""),
        ("text", "text", '"text"', "text"),
        (3, "3", "3", "3"),
        (True, "true", "true", "true"),
        ([], "", "[ ]", ""),
        (["a", "b"], "a\nb", '[ "a", "b" ]', "a\nb"),
        ({}, "{ }", "{ }", ""),
        ({"a": 1, "bcd": "x"}, '{\n  "a" : 1,\n  "bcd" : "x"\n}', None, "a    1\nbcd  x"),
        (
            [{"a": 1}, {"b": [2, 3]}],
            '{\n  "a" : 1\n}\n{\n  "b" : [ 2, 3 ]\n}',
            None,
            "A  B\n1  -\n-  [2,3]",
        ),
        (
            {"x": {"rack": "/r"}, "yy": {"rack": None}},
            None,
            None,
            "NAME  RACK\nx     /r\nyy    -",
        ),
    ],
)
def test_forms(value: object, auto: str | None, as_json: str | None, as_table: str) -> None:
    if auto is not None:
        assert rendered(value, "auto") == auto
    assert json.loads(rendered(value, "json")) == value
    if as_json is not None:
        assert rendered(value, "json") == as_json
    assert rendered(value, "table") == as_table

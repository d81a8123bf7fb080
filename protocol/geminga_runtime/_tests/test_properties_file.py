"""Properties files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_runtime.settings import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\n", {"a": "1", "b": "2"}),
        ("a: 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("# c=1\n! d=2\n\n  a=1", {"a": "1"}),
        ("a=one, \\\n   two", {"a": "one, two"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e9\\t|", {"a": "é\t|"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("url=http://x:1/?a=b", {"url": "http://x:1/?a=b"}),
        ("a=1\r\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\rb=2", {"a": "1", "b": "2"}),
        ("a=1\x0bb=2", {"a": "1\x0bb=2"}),
        ("a=1\u2028b=2", {"a": "1\u2028b=2"}),
        ("a=\\ud83d\\ude00\\u00e9", {"a": "\U0001f600é"}),
        ("a=\\ude00\\ud83d", {"a": "\ude00\ud83d"}),
    ],
)
def test_examples(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


KEYS = st.text(st.sampled_from("abcXYZ.-_0129"), min_size=1)
VALUES = st.text(st.sampled_from("abc=:# !\\/éü0")).map(str.strip)


@given(st.dictionaries(KEYS, VALUES))
def test_escaped_values_round_trip(values: dict[str, str]) -> None:
    lines = [key + "=" + value.replace("\\", "\\\\") for key, value in values.items()]
    assert parse_properties("\n".join(lines)) == values


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse_properties(text)

"""JSON bodies bound as leniently as Apache's broker binds them."""

from __future__ import annotations

import json
from typing import Literal
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Struct, UnsetType

from geminga_broker.admin.jackson import MEMBERS_MAX, Unbindable, decode, has_many_members


class Inner(Struct):
    text: str = "default"


class Outer(Struct, rename="camel"):
    a_number: int
    with_default: int = 7
    maybe: int | None = None
    unset: int | UnsetType = UNSET
    choice: Literal["one", "two"] | None = "one"
    inner: Inner | None = None
    rest: object = None


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        ("5", int, 5),
        ('"5"', int, 5),
        ('" -5 "', int, -5),
        ('""', int, 0),
        ("null", int, 0),
        ("5.9", int, 5),
        ("-5.9", int, -5),
        ("null", int | None, None),
        ('""', int | None, None),
        ("0", bool, False),
        ("2", bool, True),
        ('"True"', bool, True),
        ('"FALSE"', bool, False),
        ("null", bool, False),
        ('""', bool | None, None),
        ("12.5", str, "12.5"),
        ("true", str, "true"),
        ("null", str, None),
        ('"two"', Literal["one", "two"], "two"),
        ("1", Literal["one", "two"], "two"),
        ('"0"', Literal["one", "two"], "one"),
        ('""', Literal["one", "two"], None),
        ('["a", 1, null]', list[str], ["a", "1", None]),
        ('{"a": 1, "b": null}', dict[str, str], {"a": "1", "b": None}),
        ("{}", Outer, Outer(0)),
        ("null", Outer, None),
        ('{"aNumber": "3", "withDefault": null, "more": [1]}', Outer, Outer(3, 0)),
        ('{"maybe": "", "unset": "4", "choice": ""}', Outer, Outer(0, unset=4, choice=None)),
        ('{"inner": {"text": 1}, "rest": [1]}', Outer, Outer(0, inner=Inner("1"), rest=[1])),
    ],
)
def test_accepted_bodies(body: str, kind: object, value: object) -> None:
    found = decode(body.encode(), kind)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("", int, "truncated"),
        ("{", int, "truncated"),
        ("true", int, "a boolean where a number should be"),
        ('"x"', int, "'x' is not a number"),
        ('"1_0"', int, "'1_0' is not a number"),
        ('"٣x"', int, "is not a number"),
        ("9223372036854775808", int, "out of range"),
        ("1e300", int, "out of range"),
        ('"' + "9" * 5000 + '"', int, "is not a number"),
        ('"yes"', bool, "'yes' is not true or false"),
        ("1.5", bool, "a number where true or false should be"),
        ("{}", str, "an object where text should be"),
        ('"three"', Literal["one", "two"], "'three' is not one of one, two"),
        ("2", Literal["one", "two"], "a number where one of one, two should be"),
        ('"a"', list[str], "'a' is not an array"),
        ("[1]", Outer, "an array where an object should be"),
        ('{"inner": {"text": []}}', Outer, "inner.text: an array where text should be"),
        ('{"aNumber": [1]}', Outer, "aNumber: an array"),
        ("[" * 100_000, object, "nested too deeply"),
    ],
)
def test_what_is_refused(body: str, kind: object, text: str) -> None:
    with pytest.raises(Unbindable) as refusal:
        decode(body.encode(), kind)
    assert text in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("body", [b'"\xff"', b'{"\xff": 1}', b'["\xed\xa0\x80"]', b"\xff"])
def test_what_is_no_utf_8_is_refused(body: bytes) -> None:
    with pytest.raises(Unbindable):
        decode(body, object)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.sampled_from([int, bool, str, Outer, list[Outer], dict[str, int], int | None]))
@pytest.mark.slow
def test_any_body_binds_or_raises_unbindable(value: object, kind: object) -> None:
    import json

    try:
        decode(json.dumps(value).encode("utf-8", "surrogatepass"), kind)
    except Unbindable:
        pass


MANY = MEMBERS_MAX + 1


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"1"] * MANY) + b"]",
        b"[" * MANY,
        b"[" + b",".join([b"[]"] * (MANY // 2 + 1)) + b"]",
        b"{" + b",".join([b'"":1'] * MANY) + b"}",
        b"[" + b",".join([rb'"\\"'] * MANY) + b"]",
        b"[" + b",".join([rb'"\""'] * MANY) + b"]",
        b'""' * (2 * MANY) + b"," * MANY,
    ],
)
def test_a_body_of_very_many_members_is_refused_undecoded(body: bytes) -> None:
    with pytest.raises(Unbindable, match="more than 100000 members"):
        decode(body, object)


def test_what_stands_within_texts_does_not_count() -> None:
    text = json.dumps({"schema": json.dumps([[{"a": ["\\"] * 50}]] * 1500)}).encode()
    assert text.count(b",") < MEMBERS_MAX < 2 * text.count(b",")
    wide = json.dumps([json.dumps([1] * (2 * MANY)), "x\\", '\\"[[,,']).encode()
    for body in (text, wide):
        assert decode(body, object) == json.loads(body)


@given(
    st.recursive(
        st.none() | st.integers() | st.text('\\",[{a'),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('\\",[{a'), inner),
    )
)
@pytest.mark.slow
def test_members_are_counted_as_decoding_finds_them(value: object) -> None:
    def count(part: object) -> int:
        if not isinstance(part, list | dict):
            return 0
        inner = list(part.values()) if isinstance(part, dict) else part
        return max(1, len(inner)) + sum(map(count, inner))

    body = json.dumps(value).encode()
    with mock.patch("geminga_broker.admin.jackson.MEMBERS_MAX", max(1, count(value))):
        assert not has_many_members(body)
    if count(value) > 1:
        with mock.patch("geminga_broker.admin.jackson.MEMBERS_MAX", count(value) - 1):
            assert has_many_members(body)

"""JSON that others wrote."""

import msgspec
import pytest

from geminga_runtime.json_text import BadJson, read_json


class _Record(msgspec.Struct):
    name: str = ""
    size: int = 0


WRONG = {
    "no JSON": b"no",
    "nothing": b"",
    "cut off": b'{"name": "a',
    "no UTF-8": b'{"name": "\xff"}',
    "another type": b'{"size": []}',
    "another shape": b"[]",
    "too deep": b'{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "half a character": '{"name": "\ud800"}',
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_whatever_is_wrong_is_one_error(data: bytes | str) -> None:
    with pytest.raises(BadJson, match=r"\w") as caught:
        read_json(data, _Record)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("data", [b'{"name":"a","size":3}', '{"name":"a","size":3,"more":1}'])
def test_what_is_right_is_read(data: bytes | str) -> None:
    assert read_json(data, _Record) == _Record("a", 3)


def test_numbers_in_texts_are_numbers_if_that_is_asked_for() -> None:
    text = b'{"size":"3"}'
    assert read_json(text, _Record, strict=False) == _Record("", 3)
    with pytest.raises(BadJson, match=r"Expected `int`, got `str` - at `\$.size`"):
        read_json(text, _Record)

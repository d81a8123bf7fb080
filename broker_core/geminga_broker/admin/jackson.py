"""Converts JSON bodies to types as leniently as Apache's admin API (spec OP-03).

Apache's broker reads bodies with Jackson and a few settings (`ObjectMapperFactory`). As there, for
all routes: numbers and booleans may be strings, fractions are cut off, `null` and missing members
are zero, false or unset, unknown members are ignored, enums are given by name or number, `""` is
unset.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from geminga_runtime.json_text import BadJson, read_json

LONG_MAX = (1 << 63) - 1
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_WORDS = {str: "text", int: "a number", float: "a number", bool: "a boolean", list: "an array"}


class Unbindable(ValueError):
    """The body is no JSON, or has a wrong type; the text names the member."""


MEMBERS_MAX = 100_000
"""Members and elements of a body, those within others counted: as many boundaries of bundles as a
body has room for, and 10 000 messages with their properties, fit. Five times as many would keep the
one thread that decodes large bodies busy for a second.
"""


def decode(body: bytes, kind: object) -> object:
    """The body as a value of type `kind`. Raises Unbindable, also for one of more than
    `MEMBERS_MAX` members.
    """
    if has_many_members(body):
        raise Unbindable(f"the body has more than {MEMBERS_MAX} members")
    try:
        value = read_json(body, object)
    except BadJson as error:
        raise Unbindable(str(error)) from None
    return bind(value, kind, "")


def has_many_members(body: bytes) -> bool:
    """Whether JSON has more than `MEMBERS_MAX` members and elements, without decoding it: what
    stands within texts, as definitions of schemas, doesn't count.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") <= MEMBERS_MAX:
        return False
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    if plain.count(b'"') > 4 * MEMBERS_MAX:  # names and values, each with two
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MEMBERS_MAX


def bind(value: object, kind: object, member: str) -> object:
    """A decoded JSON value converted to type `kind`; `member` is its place, for errors.

    Java's null is None; numbers and booleans that can't be null are 0 and False. Raises Unbindable.
    """
    if kind is object or kind is typing.Any:
        return value
    simple = _SIMPLE.get(kind) if isinstance(kind, type) else None
    if simple is not None:
        return simple(value, member)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _boxed(value, arguments, member)
    if value is None:
        return None
    if origin is typing.Literal:
        return _name(value, arguments, member)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", member)
        return {key: bind(each, arguments[1], f"{member}.{key}") for key, each in value.items()}
    if origin in (list, set):
        if not isinstance(value, list):
            raise _wrong(value, "an array", member)
        found = [bind(each, arguments[0], f"{member}[{at}]") for at, each in enumerate(value)]
        return found if origin is list else set(found)
    assert isinstance(kind, type)
    assert issubclass(kind, msgspec.Struct), kind
    return _struct(value, kind, member)


def _struct(value: object, kind: type[msgspec.Struct], member: str) -> msgspec.Struct:
    if not isinstance(value, dict):
        raise _wrong(value, "an object", member)
    given: dict[str, object] = {}
    for name, encoded, field_kind, required in _fields(kind):
        if encoded in value or required:
            given[name] = bind(value.get(encoded), field_kind, f"{member}.{encoded}")
    return kind(**given)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, object, bool], ...]:
    """Name, name in JSON, type, and whether it has no default."""
    found = msgspec.structs.fields(kind)
    return tuple((each.name, each.encode_name, each.type, each.required) for each in found)


def _boxed(value: object, arguments: tuple[object, ...], member: str) -> object:
    """A nullable value: empty text is null for numbers and booleans."""
    kinds = [kind for kind in arguments if kind not in (type(None), msgspec.UnsetType)]
    if value is None:
        return None
    assert len(kinds) == 1, arguments
    if value == "" and kinds[0] in (int, bool):
        return None
    return bind(value, kinds[0], member)


def _name(value: object, names: tuple[object, ...], member: str) -> object:
    """An enum's constant by its name or number; None for empty text.

    Unknown names, which are null in Apache, are refused here.
    """
    if isinstance(value, str):
        text = value.strip()
        if not text or text in names:
            return text or None
        if text.isdecimal() and len(text) < 10:
            value = int(text)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    raise _wrong(value, f"one of {', '.join(map(str, names))}", member)


def _integer(value: object, member: str) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        text = value.strip()
        try:
            value = int(text) if text.lstrip("+-").isdecimal() and len(text) < 30 else None
        except ValueError:
            value = None
        if value is None and text:
            raise _wrong(text, "a number", member)
        value = value or 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number", member)
    if not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise Unbindable(f"{_place(member)}number {str(value)[:40]} is out of range")
    return int(value)


def _float(value: object, member: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value.strip() or 0)
        except ValueError:
            raise _wrong(value, "a number", member) from None
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number", member)
    return float(value)


def _boolean(value: object, member: str) -> bool:
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    if isinstance(value, str):
        text = value.strip()
        if not text or text in _FALSE:
            return False
        if text in _TRUE:
            return True
    raise _wrong(value, "true or false", member)


def _text(value: object, member: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    raise _wrong(value, "text", member)


_SIMPLE: Mapping[type, Callable[[object, str], object]] = {
    int: _integer,
    float: _float,
    bool: _boolean,
    str: _text,
}


def _wrong(value: object, wanted: str, member: str) -> Unbindable:
    if isinstance(value, str):
        return Unbindable(f"{_place(member)}{value[:80]!r} is not {wanted}")
    found = _WORDS.get(type(value), "an object")
    return Unbindable(f"{_place(member)}{found} where {wanted} should be")


def _place(member: str) -> str:
    return f"{member.lstrip('.')[:200]}: " if member else ""

"""Messages of `__change_events`: Avro with Apache's schema to records and back (`PulsarEvent`).

A message's key is the full name of the topic, without a partition, behind `__G__` for policies that
hold in all clusters. A message without a value deletes the policies of its key.
"""

from __future__ import annotations

import io
import json
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from geminga_broker.change_events.alien import UnsafeSchema, values_per_byte
from geminga_broker.change_events.avro_schema import EVENT_TEXT, TOPIC_POLICIES
from geminga_broker.cluster.records import JsonObject
from geminga_protocol.errors import ProtocolError
from geminga_protocol.topic_name import TopicName

if TYPE_CHECKING:
    from types import ModuleType

GLOBAL_PREFIX = "__G__"

SCHEMA_BYTES_MAX = 32 * 1024
"""Of a schema that somebody has registered; Apache's takes 9 KiB."""

SCHEMAS_MAX = 32
"""Schemas of others that stay parsed."""

VALUES_MAX = 150_000
"""What an event may become when it is decoded: some 3 000 a millisecond. Of Apache's schema these
are 37 KiB; its events take some hundred bytes, and some 40 for each subscription with a policy.
"""

ALIEN_VALUES_MAX = 50_000
"""The same by a schema of somebody else's, who may have chosen what takes longest."""

_EMPTY: JsonObject = {
    "backLogQuotaMap": {},
    "subscriptionPolicies": {},
    "subscriptionTypesEnabled": [],
}
"""Fields that Java's TopicPolicies never leaves out."""


class BadEvent(Exception):
    """A message that is no event."""


class PolicyEvent(NamedTuple):
    """Policies of the topic with this full name from now on; `record` is None if they are deleted.
    With `only_new` they hold if there are none.
    """

    topic: str
    is_global: bool
    record: JsonObject | None
    only_new: bool = False


def key_of(topic: TopicName, *, is_global: bool) -> str:
    """The key of messages about a topic, which is not a partition."""
    return f"{GLOBAL_PREFIX}{topic}" if is_global else str(topic)


def encode(topic: TopicName, record: JsonObject, *, is_global: bool, cluster: str) -> bytes:
    """The message that gives a topic these policies, as Apache's broker writes it. Fields that
    Apache doesn't know, and those of a wrong type, are left out.
    """
    tenant, _, namespace = topic.namespace.partition("/")
    fitting = {name: value for name, value in _fitting(record).items() if value is not None}
    policies = {**_EMPTY, **fitting, "isGlobal": is_global}
    event = {
        "actionType": "UPDATE",
        "eventType": "TOPIC_POLICY",
        "replicateTo": None if is_global else [cluster],
        "topicPoliciesEvent": {
            "domain": topic.domain,
            "tenant": tenant,
            "namespace": namespace,
            "topic": topic.local_name,
            "policies": policies,
        },
    }
    out = io.BytesIO()
    _avro().schemaless_writer(out, _own_schema().parsed, event)
    return out.getvalue()


def out_of_range(record: JsonObject) -> str | None:
    """A number of the record that is larger than Apache's type for it takes: its name and value;
    None without one.
    """
    return _cut(record, _fitting(record))


def _cut(given: object, fitting: object, member: str = "") -> str | None:
    if isinstance(given, dict) and isinstance(fitting, dict):
        parts = (_cut(given.get(name), each, f"{member}.{name}") for name, each in fitting.items())
        return next((each for each in parts if each is not None), None)
    if type(given) is int and type(fitting) is int and given != fitting:
        return f"{member.removeprefix('.')}: number {str(given)[:40]}"
    return None


def deletion(key: str) -> PolicyEvent:
    """The event of a message without a value. Raises BadEvent."""
    is_global = key.startswith(GLOBAL_PREFIX)
    return PolicyEvent(_topic(key.removeprefix(GLOBAL_PREFIX)), is_global, None)


def weight(payload: bytes, writer: bytes | None = None) -> int:
    """The most values that the message can become by this schema, about. Raises BadEvent if it is
    too much, or the schema is not safe.
    """
    schema = _schema(writer)
    values = len(payload) * schema.values_per_byte
    if values > (VALUES_MAX if schema is _own_schema() else ALIEN_VALUES_MAX):
        raise BadEvent(f"{len(payload)} bytes are too many for an event")
    return values


def is_read(payload: bytes) -> bool:
    """Whether an event of ours isn't too large to be read again."""
    return len(payload) * _own_schema().values_per_byte <= VALUES_MAX


def decode(payload: bytes, writer: bytes | None = None) -> PolicyEvent | None:
    """The event of a message that was written with this schema; None for events of other kinds.
    Raises BadEvent. See `weight` first.
    """
    schema = _schema(writer).parsed
    try:
        found = _avro().schemaless_reader(io.BytesIO(payload), schema, None)
    except Exception as error:  # the decoder raises whatever the bytes lead it to
        raise BadEvent(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict) or found.get("eventType") != "TOPIC_POLICY":
        return None
    return _event(cast(JsonObject, found))


def _event(found: JsonObject) -> PolicyEvent | None:
    about, action = found.get("topicPoliciesEvent"), found.get("actionType")
    if action in (None, "NONE"):
        return None
    if not isinstance(about, dict):
        raise BadEvent("no topicPoliciesEvent")
    parts = [about.get(name) for name in ("domain", "tenant", "namespace", "topic")]
    if not all(isinstance(each, str) for each in parts):
        raise BadEvent("no topic")
    topic = _topic(f"{parts[0]}://{parts[1]}/{parts[2]}/{parts[3]}")
    policies = about.get("policies")
    is_global = isinstance(policies, dict) and policies.get("isGlobal") is True
    if action == "DELETE":
        return PolicyEvent(topic, is_global, None)
    if not isinstance(policies, dict):
        raise BadEvent("no policies")
    return PolicyEvent(topic, is_global, _told(policies), action == "INSERT")


def _told(policies: JsonObject) -> JsonObject:
    """What is set: neither null nor an empty list or map, of a record within a record too."""
    found: JsonObject = {}
    for name, given in policies.items():
        value = _told(cast(JsonObject, given)) if isinstance(given, dict) else given
        if value is not None and value not in ({}, []) and name != "isGlobal":
            found[name] = value
    return found


def _topic(text: str) -> str:
    try:
        return str(TopicName.parse(text).partitioned_base)
    except ProtocolError as error:
        raise BadEvent(str(error)) from error


def _fitting(record: JsonObject) -> JsonObject:
    """The record's fields that fit the schema."""
    named: dict[str, object] = {}
    found = _fit(record, TOPIC_POLICIES, named)
    return cast(JsonObject, found) if isinstance(found, dict) else {}


class _Unfit(Exception):
    """A value that doesn't fit its type."""


def _fit(value: object, kind: object, named: dict[str, object]) -> object:
    """The value as the type takes it. Of a record, what doesn't fit is left out, or the default
    of Java's primitive types.
    """
    if isinstance(kind, list):
        return None if value is None else _fit(value, kind[1], named)
    if isinstance(kind, str):
        if kind in named:
            return _fit(value, named[kind], named)
        return _fit_primitive(value, kind)
    assert isinstance(kind, dict)
    _learn(kind, named)
    if kind["type"] == "enum":
        if value not in kind["symbols"]:
            raise _Unfit
        return value
    if kind["type"] == "array" and isinstance(value, list):
        return [_fit(each, kind["items"], named) for each in value]
    if kind["type"] == "map" and isinstance(value, dict):
        return {str(name): _fit(each, kind["values"], named) for name, each in value.items()}
    if kind["type"] == "record" and isinstance(value, dict):
        return {each["name"]: _fit_field(value, each, named) for each in kind["fields"]}
    raise _Unfit


def _fit_field(record: JsonObject, field: JsonObject, named: dict[str, object]) -> object:
    kind = field["type"]
    default = None if isinstance(kind, list) else _ZEROS[str(kind)]
    try:
        found = _fit(record.get(str(field["name"])), kind, named)
    except _Unfit:
        return default
    finally:
        _learn(kind, named)
    return default if found is None else found


def _learn(kind: object, named: dict[str, object]) -> None:
    """The named types in a type whose value is missing: later fields may refer to them."""
    if isinstance(kind, list):
        _learn(kind[1], named)
    elif isinstance(kind, dict) and kind["type"] in ("record", "enum"):
        named[f"{kind.get('namespace', '')}.{kind['name']}"] = kind


_ZEROS = {"int": 0, "long": 0, "double": 0.0, "boolean": False}
_LIMITS = {"int": 1 << 31, "long": 1 << 63}


def _fit_primitive(value: object, kind: str) -> object:
    if kind in _LIMITS and type(value) is int:
        # To the nearest: an older version took larger ones, and zero may mean to keep nothing.
        return max(-_LIMITS[kind], min(value, _LIMITS[kind] - 1))
    if kind == "double" and type(value) in (int, float):
        return float(cast(float, value))
    if (kind == "boolean" and type(value) is bool) or (kind == "string" and type(value) is str):
        return value
    raise _Unfit


@cache
def _avro() -> ModuleType:
    import fastavro  # only needed where topics have policies of their own

    return fastavro


class _Schema(NamedTuple):
    """A schema that is read by."""

    parsed: object
    values_per_byte: int


@cache
def _own_schema() -> _Schema:
    found = json.loads(EVENT_TEXT)
    return _Schema(_avro().parse_schema(found), values_per_byte(found))


def _schema(writer: bytes | None) -> _Schema:
    """Raises BadEvent."""
    if writer is None or writer == EVENT_TEXT:
        return _own_schema()
    found = _schema_of(writer)
    if isinstance(found, str):
        raise BadEvent(found)
    return found


@lru_cache(maxsize=SCHEMAS_MAX)
def _schema_of(text: bytes) -> _Schema | str:
    """The schema, or why nothing is read by it."""
    try:
        if len(text) > SCHEMA_BYTES_MAX:
            raise UnsafeSchema("too large")
        found = json.loads(text)
        ratio = values_per_byte(found)  # before the parser, which follows it into itself
        return _Schema(_avro().parse_schema(found), ratio)
    except Exception as error:  # the parsers raise whatever the text leads them to
        return f"{type(error).__name__}: {error}"[:200]

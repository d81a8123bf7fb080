"""Bounds of commands (spec PR-16).

Every text and every list of every command has a bound here; without one a command can't be served
(`checks_of` raises). The bounds are checked before a command is handled. Those of SEND, ACK and
REDELIVER_UNACKNOWLEDGED_MESSAGES are in their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from functools import partial
from typing import NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from geminga_broker.errors import BrokerError
from geminga_broker.limits import (
    NAME_BYTES_MAX,
    SCHEMA_BYTES_MAX,
    check_properties,
    check_subscription,
    check_text,
    check_topic,
)
from geminga_protocol.ack_set import WORDS_MAX
from geminga_protocol.frames import CommandLimits
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, KeyValue, ServerError

FIRST_FRAMES_BYTES_MAX = 64 * 1024
"""Bound of a frame before authentication; credentials fit."""

COMMAND_BYTES_MAX = 64 * 1024

SCHEMA_COMMAND_BYTES_MAX = SCHEMA_BYTES_MAX + 256 * 1024

IDS_BYTES_MAX = 1 << 20
"""Bound of a command with message ids: some 80 000. Clients send 1000 (Java), or at most a
consumer's unacknowledged messages (50 000 by default).
"""

ENTRIES_MAX = 10_000
"""Bound of lists of texts; longer ones are not read at all."""

RANGES_MAX = 10_000
"""Hash ranges of a Key_Shared consumer."""

_C = BaseCommand.Type

COMMAND_LIMITS = CommandLimits(
    COMMAND_BYTES_MAX,
    {
        _C.PRODUCER: SCHEMA_COMMAND_BYTES_MAX,
        _C.SUBSCRIBE: SCHEMA_COMMAND_BYTES_MAX,
        _C.GET_OR_CREATE_SCHEMA: SCHEMA_COMMAND_BYTES_MAX,
        _C.SEEK: 4 * COMMAND_BYTES_MAX,  # an ack set
        _C.ACK: IDS_BYTES_MAX,
        _C.REDELIVER_UNACKNOWLEDGED_MESSAGES: IDS_BYTES_MAX,
    },
    ENTRIES_MAX,
)
"""For the frame reader, which doesn't parse larger commands."""

BOUNDED_ELSEWHERE = frozenset((_C.SEND, _C.FLOW, _C.ACK, _C.REDELIVER_UNACKNOWLEDGED_MESSAGES))
"""The hot path: handlers take large ones in turns."""

Check = Callable[[object], None]


def _text(what: str, bytes_max: int = NAME_BYTES_MAX) -> Check:
    def check(value: object) -> None:
        check_text(what, cast(str, value), bytes_max)

    return check


def _data(what: str, bytes_max: int) -> Check:
    return partial(_check_length, what, bytes_max)


def _check_length(what: str, longest: int, value: object) -> None:
    if len(cast(Sized, value)) > longest:
        raise BrokerError(ServerError.NotAllowedError, f"More than {longest} {what}")


def _properties(what: str) -> Check:
    def check(value: object) -> None:
        pairs = cast("Iterable[KeyValue]", value)
        check_properties(what, ((pair.key, pair.value) for pair in pairs))

    return check


def _check_namespace(value: object) -> None:
    check_text("namespace", cast(str, value), NAME_BYTES_MAX, ServerError.InvalidTopicName)


_TEXTS: Mapping[str, Check] = {
    "topic": cast(Check, check_topic),
    "namespace": _check_namespace,
    "subscription": cast(Check, check_subscription),
    "initial_subscription_name": cast(Check, check_subscription),
    "producer_name": _text("producer name"),
    "consumer_name": _text("consumer name"),
    "name": _text("schema's name", 2 * NAME_BYTES_MAX),
    "schema_data": _data("bytes of a schema", SCHEMA_BYTES_MAX),
    "schema_version": _data("bytes of a schema's version", NAME_BYTES_MAX),
    "topics_pattern": _text("pattern", COMMAND_BYTES_MAX),
    "topics_hash": _text("hash of topics"),
    "advertised_listener_name": _text("listener name"),
    "client_version": _text("client's version"),
    "proxy_version": _text("proxy's version"),
    "proxy_to_broker_url": _text("broker's address"),
    "assignedBrokerServiceUrl": _text("broker's address"),
    "assignedBrokerServiceUrlTls": _text("broker's address"),
    "auth_method_name": _text("authentication method"),
    "auth_data": _data("bytes of credentials", FIRST_FRAMES_BYTES_MAX),
    "original_principal": _text("original principal"),
    "original_auth_data": _text("original credentials", FIRST_FRAMES_BYTES_MAX),
    "original_auth_method": _text("original authentication method"),
}
"""By field name, which means the same in all commands."""

_LISTS: Mapping[str, Check] = {
    "metadata": _properties("Metadata"),
    "properties": _properties("Properties"),
    "subscription_properties": _properties("Subscription properties"),
    "hashRanges": _data("hash ranges", RANGES_MAX),
    "ack_set": _data("words of an ack set", WORDS_MAX),
    "partitions": _data("partitions", ENTRIES_MAX),
    "subscription": _data("subscriptions", ENTRIES_MAX),
}


class _Field(NamedTuple):
    name: str
    check: Check | None
    nested: tuple[_Field, ...] = ()


Checks = tuple[_Field, ...]


def checks_of(descriptor: Descriptor) -> Checks:
    """The checks of a type of messages. Raises LookupError for a text or list without a bound."""
    found = []
    for field in descriptor.fields:
        nested = field.message_type
        if field.is_repeated:
            found.append(_Field(field.name, _LISTS[field.name]))
        elif nested is not None:
            inner = checks_of(nested) if nested is not descriptor else ()
            if inner:
                found.append(_Field(field.name, None, inner))
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            found.append(_Field(field.name, _TEXTS[field.name]))
    return tuple(found)


def check(checks: Checks, message: Message) -> None:
    """Raises BrokerError for the first field above its bound."""
    for field in checks:
        if field.check is not None:
            field.check(getattr(message, field.name))
        elif message.HasField(field.name):
            check(field.nested, getattr(message, field.name))

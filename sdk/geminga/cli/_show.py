"""Messages as text: a line, or a JSON object."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.message import Message

_MARK = " (not decoded: {})"


def describe(message: Message[object], *, in_hex: bool) -> str:
    """A message in one line, in pulsar-client's format (AbstractCmdConsume.interpretMessage).

    A value that can't be decoded is shown as its bytes, with the reason.
    """
    key = "null" if message.partition_key is None else message.partition_key
    pairs = ", ".join(f"{name}={value}" for name, value in message.properties.items())
    return (
        f"publishTime:[{message.publish_time_ms}], eventTime:[{message.event_time_ms or 0}],"
        f" key:[{key}], properties:[{pairs}], content:{_content(message, in_hex)}"
    )


def _content(message: Message[object], in_hex: bool) -> str:
    if in_hex:
        return message.data.hex(" ").upper()
    value, failure = _value(message)
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        return text if failure is None else text + _MARK.format(failure)
    return value if isinstance(value, str) else _json(value)


def as_json(message: Message[object]) -> str:
    """A message as a JSON object in one line. `value` is the decoded value or, without a schema,
    the text; bytes that are no UTF-8 are in `valueBase64`, and `error` has a decoding error.
    """
    told: dict[str, object] = {
        "messageId": str(message.message_id),
        "topic": message.topic_name,
        "publishTime": message.publish_time_ms,
        "eventTime": message.event_time_ms or 0,
        "key": message.partition_key,
        "properties": dict(message.properties),
        "redeliveryCount": message.redelivery_count,
    }
    value, failure = _value(message)
    if isinstance(value, bytes):
        try:
            told["value"] = value.decode()
        except UnicodeDecodeError:
            told["valueBase64"] = base64.b64encode(value).decode()
    else:
        told["value"] = value
    if failure is not None:
        told["error"] = failure
    return _json(told)


def _value(message: Message[object]) -> tuple[object, str | None]:
    """The decoded value and None, or the payload and the error."""
    from geminga.errors import SchemaError

    try:
        return message.value, None
    except SchemaError as error:
        return message.data, str(error)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(_plain(value), enc_hook=str).decode()


def _plain(value: object) -> object:
    """The value for JSON: generic records as dictionaries, bytes as text or Base64."""
    from collections.abc import Mapping

    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value

"""Messages as the admin REST answers them: payloads with headers (Apache's TopicsImpl)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga_runtime.http.answers import HttpAnswer

_PREFIX = "x-pulsar-"
_PROPERTIES = "x-pulsar-property"
_PROPERTY = "x-pulsar-property-"
"""Of older brokers: a header for each."""


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """A message as it is stored. `message_id` is `ledger:entry`, in a batch with its number there;
    times are the broker's texts. `headers` has the answer's own (`X-Pulsar-...`) in lower case,
    without that prefix.
    """

    message_id: str
    data: bytes
    key: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    publish_time: str | None = None
    event_time: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


StoredMessages = list[StoredMessage]
"""Those of one entry."""


def messages_of(answer: HttpAnswer) -> list[StoredMessage]:
    """The messages of an entry. Raises AdminError."""
    headers: dict[str, str] = {}
    properties: dict[str, str] = {}
    for name, value in answer.header_list:
        if name.lower() == _PROPERTIES:
            properties |= _properties(value)
        elif name.lower().startswith(_PROPERTY):
            properties[name[len(_PROPERTY) :]] = value
        elif name.lower().startswith(_PREFIX):
            headers[name.lower()[len(_PREFIX) :]] = value
    whole = StoredMessage(
        message_id=headers.get("message-id", ""),
        data=answer.body,
        key=headers.get("partition-key"),
        properties=properties,
        publish_time=headers.get("publish-time"),
        event_time=headers.get("event-time"),
        headers=headers,
    )
    count = headers.get("num-batch-message")
    return [whole] if count is None else _of_batch(whole, count)


def _properties(value: str) -> dict[str, str]:
    """The properties, an object of JSON."""
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    return {str(name): str(each) for name, each in found.items()} if isinstance(found, dict) else {}


def _of_batch(whole: StoredMessage, count: str) -> list[StoredMessage]:
    from geminga._admin.errors import AdminError
    from geminga_protocol.batch import split_batch
    from geminga_protocol.errors import RemoteProtocolError
    from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata

    try:
        metadata = MessageMetadata(num_messages_in_batch=int(count))
        singles = split_batch(metadata, memoryview(whole.data))
    except (ValueError, RemoteProtocolError) as error:
        raise AdminError(f"the batch can't be read: {error}", code="BadAnswer") from error
    return [
        StoredMessage(
            message_id=f"{whole.message_id}:{index}",
            data=bytes(payload),
            key=single.partition_key if single.HasField("partition_key") else None,
            properties={each.key: each.value for each in single.properties},
            publish_time=whole.publish_time,
            event_time=str(single.event_time) if single.event_time else None,
            headers=whole.headers,
        )
        for index, (single, payload) in enumerate(singles)
    ]

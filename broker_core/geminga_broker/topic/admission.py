"""Checks of published messages, by a topic's policies (spec BR-20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga_broker.topic.api import PublishItem
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.payload import parse_head
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

Admission = Callable[[PublishItem], str | None]
"""Returns why an item is refused, None if it is accepted."""


def admitted(
    items: Sequence[PublishItem],
    encryption_required: bool,
    admission: Admission | None,
    refuse: Callable[[int, ServerError, str], None],
) -> list[PublishItem]:
    """The accepted items. For all others calls `refuse` with the sequence id, and the code and text
    for SEND_ERROR.
    """
    taken: list[PublishItem] = []
    for item in items:
        if encryption_required and not _is_encrypted(item):
            refuse(item.sequence_id, ServerError.MetadataError, "Messages must be encrypted")
        elif admission is not None and (text := admission(item)) is not None:
            refuse(item.sequence_id, ServerError.NotAllowedError, text)
        else:
            taken.append(item)
    return taken


def _is_encrypted(item: PublishItem) -> bool:
    try:
        return len(parse_head(item.payload).encryption_keys) > 0
    except RemoteProtocolError:
        return False

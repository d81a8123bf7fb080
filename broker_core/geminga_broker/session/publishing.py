"""SEND (spec PR-07, BR-24)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fastcrc import crc32

from geminga_broker.session.session import Session, SessionClosed
from geminga_broker.topic.api import PublishItem
from geminga_broker.topic.producer import Producer
from geminga_protocol.commands import producing
from geminga_protocol.frames import Frame
from geminga_protocol.payload import MAGIC_CRC32C
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandSend, ServerError
from geminga_protocol.sends import SendRun

_SEND = int(BaseCommand.Type.SEND)
_NOT_ALLOWED = ServerError.NotAllowedError
_NO_TRANSACTIONS = "Transactions are not enabled"
_FRONT = struct.Struct(">HI")
CHECKED_BYTES = _FRONT.size
"""Magic and checksum. No message is shorter, even without them: it has metadata."""

unpack_front = _FRONT.unpack_from
crc32c = crc32.iscsi
_new_item = tuple.__new__

Run = tuple[Producer | None, list[PublishItem]]


def publish_run(session: Session, frames: Sequence[Frame], start: int) -> int:
    """Pass the SENDs from `start` on, up to another command, to their producers, in one list each.

    Returns the index after the run. Refuses single entries with a wrong checksum or a transaction.
    Raises SessionClosed for a producer that was never open.
    """
    if not session.connected:
        raise SessionClosed("SEND before CONNECT")
    runs: dict[int, Run] = {}
    last_id = -1
    items: list[PublishItem] = []
    index, end = start, len(frames)
    while index < end:
        frame = frames[index]
        if frame.type != _SEND:
            break
        index += 1
        if (sends := frame.sends) is not None:
            last_id = -1
            _publish_joined(session, runs, sends)
            continue
        send: CommandSend = frame.body  # type: ignore[assignment]
        producer_id = send.producer_id
        if producer_id != last_id:
            last_id = producer_id
            run = runs.get(producer_id)
            if run is None:
                run = runs[producer_id] = (_producer(session, producer_id), [])
            items = run[1]
        payload = frame.payload
        if payload is None or len(payload) < CHECKED_BYTES:
            _refuse(session, producer_id, send.sequence_id, "The message has no metadata")
            continue
        # `payload.verify_checksum` inlined: this is the hot path.
        magic, checksum = unpack_front(payload)
        if magic == MAGIC_CRC32C and crc32c(payload[CHECKED_BYTES:]) != checksum:
            _refuse(session, producer_id, send.sequence_id, "Checksum failed on the broker")
            continue
        if send.HasField("txnid_least_bits") and send.HasField("txnid_most_bits"):
            _refuse(session, producer_id, send.sequence_id, _NO_TRANSACTIONS, _NOT_ALLOWED)
            continue
        messages = send.num_messages
        if not 0 < messages <= len(payload):
            messages = 1  # impossible: each message of a batch takes some bytes
        items.append(
            _new_item(
                PublishItem,
                (
                    send.sequence_id,
                    payload,
                    messages,
                    send.highest_sequence_id,
                    send.is_chunk,
                ),
            )
        )
    for producer, items in runs.values():
        if items and producer is not None:
            producer.publish(items)
    return index


def _publish_joined(session: Session, runs: dict[int, Run], sends: SendRun) -> None:
    """Pass joined SENDs to their producer, after its earlier ones."""
    producer_id = sends.producer_id
    producer, items = runs.pop(producer_id) if producer_id in runs else (None, [])
    producer = producer or _producer(session, producer_id)
    if producer is not None:
        if items:
            producer.publish(items)
        producer.publish_joined(sends.first_sequence_id, sends.payloads)


def _producer(session: Session, producer_id: int) -> Producer | None:
    """The open producer; None if the broker closed it: its last SENDs are dropped, and the client
    resends them after it has reconnected.
    """
    producer = session.producers.opened.get(producer_id)
    if producer is None and not session.producers.was_closed(producer_id):
        raise SessionClosed(f"SEND for producer {producer_id}, which is not open")
    return producer


def _refuse(
    session: Session,
    producer_id: int,
    sequence_id: int,
    text: str,
    code: ServerError = ServerError.ChecksumError,
) -> None:
    if session.producers.get(producer_id) is None:
        return  # closed by the broker; the client may not know it yet
    session.write(producing.send_error(producer_id, sequence_id, code, text))

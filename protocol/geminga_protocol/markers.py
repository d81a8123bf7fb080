"""Markers: messages that brokers write for each other and no consumer sees (spec PR-17)."""

from __future__ import annotations

from enum import IntEnum

from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata

PRODUCER_NAME = "pulsar.marker"


class MarkerType(IntEnum):
    """`MessageMetadata.marker_type` (Apache's MarkerType)."""

    UNKNOWN_MARKER = 0
    REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST = 10
    REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE = 11
    REPLICATED_SUBSCRIPTION_SNAPSHOT = 12
    REPLICATED_SUBSCRIPTION_UPDATE = 13
    TXN_COMMITTING = 20
    TXN_COMMIT = 21
    TXN_ABORT = 22


_REPLICATION = range(10, 14)


def is_server_only(metadata: MessageMetadata) -> bool:
    """Whether the message must not go to consumers: any marker, known or not."""
    return metadata.HasField("marker_type")


def is_replication(metadata: MessageMetadata) -> bool:
    """Whether it is a marker of replicated subscriptions."""
    return is_server_only(metadata) and metadata.marker_type in _REPLICATION


def is_txn(metadata: MessageMetadata) -> bool:
    """Whether it ends a transaction."""
    ends = (MarkerType.TXN_COMMIT, MarkerType.TXN_ABORT)
    return is_server_only(metadata) and metadata.marker_type in ends


def txn_marker(
    marker: MarkerType, sequence_id: int, txnid: tuple[int, int], publish_time_ms: int
) -> bytes:
    """Headers and payload of a commit or abort marker; `txnid` is (most, least) bits."""
    metadata = MessageMetadata(
        producer_name="",
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        marker_type=marker,
        txnid_most_bits=txnid[0],
        txnid_least_bits=txnid[1],
    )
    return build(metadata, b"")


def replication_marker(
    marker: MarkerType, body: bytes, publish_time_ms: int, replicate_to: str | None = None
) -> bytes:
    """Headers and payload of a replicated-subscription marker, for one cluster or for all."""
    metadata = MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=0,
        publish_time=publish_time_ms,
        marker_type=marker,
        replicate_to=[] if replicate_to is None else [replicate_to],
    )
    return build(metadata, body)

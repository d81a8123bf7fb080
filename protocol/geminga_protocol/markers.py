"""Markers: messages that brokers write for each other and no consumer sees (spec PR-17)."""

from __future__ import annotations

from enum import IntEnum

from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


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

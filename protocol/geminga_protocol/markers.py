"""Markers: messages between brokers, hidden from consumers (spec PR-17)."""

from __future__ import annotations

from enum import IntEnum


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

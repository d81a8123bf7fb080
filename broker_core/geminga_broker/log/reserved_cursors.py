"""The broker's own cursors. Clients can't subscribe by these names.

The prefix of replicators' cursors belongs here, once they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEDUPLICATION = "pulsar.dedup"
"""Snapshots of the stored sequence ids (`PersistentTopic.DEDUPLICATION_CURSOR_NAME`)."""

COMPACTION = "__compaction"
"""At the compaction's horizon (`Compactor.COMPACTION_SUBSCRIPTION`)."""

RESERVED_CURSORS: Mapping[str, bool] = MappingProxyType({DEDUPLICATION: False, COMPACTION: True})
"""Each name, and whether admin and statistics show the cursor as a subscription."""

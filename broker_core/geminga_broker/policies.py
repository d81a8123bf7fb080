"""Namespace policies that topics obey (spec BR-60; Apache's `Policies`)."""

from __future__ import annotations

from geminga_broker.log.options import MIB, Retention
from geminga_broker.resources import JsonObject


def retention_of(policies: JsonObject | None, default: Retention) -> Retention:
    """`retention_policies`, where a namespace has them; negative values keep without limit."""
    record = (policies or {}).get("retention_policies")
    if not isinstance(record, dict):
        return default
    minutes, size_mb = record.get("retentionTimeInMinutes"), record.get("retentionSizeInMB")
    if not isinstance(minutes, int) or not isinstance(size_mb, int):
        return default
    return Retention(minutes * 60, size_mb * MIB)

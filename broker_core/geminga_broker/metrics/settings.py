"""The keys of `broker.conf` about `/metrics`, with Apache's defaults (spec OP-05, OP-07)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Which series are told: their number is bounded by what they are labelled with."""

    topics: bool = setting("exposeTopicLevelMetricsInPrometheus", True)
    """By topic and subscription; else sums by namespace."""
    consumers: bool = setting("exposeConsumerLevelMetricsInPrometheus", False)
    producers: bool = setting("exposeProducerLevelMetricsInPrometheus", False)
    managed_ledgers: bool = setting("exposeManagedLedgerMetricsInPrometheus", True)
    """Of storage, by namespace."""
    cursors: bool = setting("exposeManagedCursorMetricsInPrometheus", False)
    split_partitions: bool = setting("splitTopicAndPartitionLabelInPrometheus", False)
    """The label `topic` is the partitioned topic then, `partition` the index, or -1."""
    period_s: int = setting("managedLedgerStatsPeriodSeconds", 60, at_least=1)
    """Of rates and histograms of storage."""

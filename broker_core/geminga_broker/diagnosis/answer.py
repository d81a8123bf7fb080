"""Findings as JSON objects, also those of several partitions (spec OP-12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from geminga_broker.diagnosis.finding import Finding, Level

_LEVELS = [level.value for level in Level]


def as_json(topic: str, subscription: str, findings: Iterable[Finding]) -> list[dict[str, str]]:
    """The answer for a subscription of one topic."""
    return [
        {
            "topic": topic,
            "subscription": subscription,
            "code": each.code,
            "level": each.level.value,
            "sentence": each.sentence,
            "advice": each.advice,
        }
        for each in findings
    ]


def missing_on(partition: str, subscription: str) -> dict[str, str]:
    """The finding for a partition without the subscription."""
    finding = Finding(
        "NO_SUBSCRIPTION",
        Level.WARN,
        "This partition has no such subscription: it keeps no messages for it.",
        "Create the subscription on the whole topic, or let a consumer subscribe.",
    )
    return as_json(partition, subscription, [finding])[0]


def worst_first(findings: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The findings by level; of one level the order stays. Unknown levels come last."""

    def rank(finding: Mapping[str, str]) -> int:
        level = finding.get("level", "")
        return _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)

    return sorted(findings, key=rank)

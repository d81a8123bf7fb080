"""What namespace policies mean for topics."""

from __future__ import annotations

import pytest

from geminga_broker.log.options import Retention
from geminga_broker.policies import retention_of
from geminga_broker.resources import JsonObject

DEFAULT = Retention(5, 7)


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (None, DEFAULT),
        ({}, DEFAULT),
        ({"retention_policies": None}, DEFAULT),
        ({"retention_policies": {"retentionTimeInMinutes": "x"}}, DEFAULT),
        (
            {"retention_policies": {"retentionTimeInMinutes": 2, "retentionSizeInMB": 3}},
            Retention(120, 3 << 20),
        ),
        (
            {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}},
            Retention(-60, -(1 << 20)),
        ),
    ],
)
def test_retention(policies: JsonObject | None, expected: Retention) -> None:
    assert retention_of(policies, DEFAULT) == expected

"""Slow operations are told, in few lines (OP-08)."""

from __future__ import annotations

import logging

import pytest

from geminga_runtime.logs import FewLines
from geminga_runtime.observing.slow import SLOW_S, SlowOperations


def test_only_what_is_slow_is_told(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowOperations(logging.getLogger("x"))
    slow.ended(SLOW_S, "topic=%s was loaded", "a")
    assert caplog.messages == []
    slow.ended(SLOW_S + 0.5, "topic=%s was loaded", "b")
    assert caplog.messages == ["slow: topic=b was loaded: 1500 ms"]


def test_many_are_told_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowOperations(logging.getLogger("x"))
    for number in range(100):
        slow.ended(2.0, "topic=%s was loaded", number)
        slow.ended(2.0, "read of %s", number, about=str(number % 2))
    assert len(caplog.messages) == 3 * FewLines.LINES

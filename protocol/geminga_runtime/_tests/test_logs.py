"""Lines of the log are bounded (OP-08, PR-16)."""

from __future__ import annotations

import logging
import sys
import time

import pytest

from geminga_runtime.logs import (
    LINE_CHARACTERS_MAX,
    TRACEBACK_CHARACTERS_MAX,
    FewLines,
    LineBudget,
    LineFormatter,
    Seldom,
    in_one_line,
)

LONG = "x\n" * (5 << 20)


def line_of(*args: object, error: Exception | None = None) -> str:
    formatter = LineFormatter("%(levelname)s %(message)s")
    info = None
    if error is not None:
        try:
            raise error
        except Exception:
            info = sys.exc_info()
    record = logging.LogRecord("n", logging.WARNING, "p", 1, "what %s", args, info)
    return formatter.format(record)


def test_a_long_message_is_cut() -> None:
    line = line_of(LONG)
    assert len(line) <= 4 * LINE_CHARACTERS_MAX + 100
    assert line.startswith("WARNING what x\\x0a")
    assert line.endswith(" more)")
    assert "\n" not in line


def test_a_short_one_is_not() -> None:
    assert line_of("a") == "WARNING what a"


def test_times_are_those_of_the_records() -> None:
    ours, plain = LineFormatter("%(asctime)s"), logging.Formatter("%(asctime)s")
    plain.converter = time.gmtime
    plain.default_time_format = "%Y-%m-%dT%H:%M:%S"
    plain.default_msec_format = "%s.%03dZ"
    record = logging.LogRecord("n", logging.INFO, "p", 1, "", (), None)
    for created in (0.0, 1.25, 1.999, 59.9999, 60.0, 1e9, 999_999_999.5, 1.25):
        record.created, record.msecs = created, int(created % 1 * 1000) + 0.0
        assert ours.format(record) == plain.format(record)
    assert ours.formatTime(record, "%Y") == "1970"


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, 0x85, 0x2028, 0x2029])
def test_no_character_breaks_a_line(code: int) -> None:
    assert chr(code) not in in_one_line(f"a{chr(code)}b")
    assert in_one_line("a \xe9\u4e2d\U0001f600") == "a \xe9\u4e2d\U0001f600"


def test_one_peer_causes_few_lines() -> None:
    budget = LineBudget(2, 60)
    assert [budget.take(now_s) for now_s in (0, 1, 2, 59, 60, 61, 62)] == [
        0,
        0,
        None,
        None,
        2,
        0,
        None,
    ]
    assert budget.left_out == 1


def test_warnings_about_one_thing_are_few(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    few = FewLines(logging.getLogger("geminga_runtime.few"), lambda: now_s)
    for number in range(1000):
        few.warning("bookie %s fails: %d", "b0", number, about="b0")
    few.warning("bookie %s fails: %d", "b1", 0, about="b1")
    assert len(caplog.messages) == FewLines.LINES + 1
    assert caplog.messages[-1] == "bookie b1 fails: 0"
    now_s = FewLines.PERIOD_S
    few.warning("bookie %s fails: %d", "b0", 7, about="b0")
    assert caplog.messages[-1] == "bookie b0 fails: 7 (and 990 like it left out)"


def test_warnings_about_many_things_are_few_too(caplog: pytest.LogCaptureFixture) -> None:
    few = FewLines(logging.getLogger("geminga_runtime.few"), lambda: 0.0)
    for number in range(100_000):
        few.warning("bookie %d fails", number, about=f"b{number}")
    assert len(caplog.messages) == FewLines.THINGS_MAX + FewLines.LINES
    assert len(few._budgets) == FewLines.THINGS_MAX + 1


def test_a_long_traceback_keeps_its_end() -> None:
    text = line_of("a", error=ValueError("x" * (5 << 20) + " the end"))
    assert len(text) <= TRACEBACK_CHARACTERS_MAX + 1000
    assert text.endswith("the end")
    assert "Traceback" in line_of("a", error=ValueError("b"))


def test_a_line_that_comes_again_and_again() -> None:
    lines = Seldom(60, "connected")

    def written(text: str, at_s: float) -> bool:
        record = logging.LogRecord("n", logging.WARNING, "p", 1, "%s", (text,), None)
        record.created = at_s
        return lines.filter(record)

    assert [written("refused", at_s) for at_s in (0, 1, 59, 60, 61)] == [
        *(True, False, False, True, False)
    ]
    assert written("reset", 61)
    assert written("connected to h", 62)
    assert written("refused", 62), "the connection was there meanwhile"
    assert not written("refused", 63)
    assert all(written(f"line {number}", 64) for number in range(1000))
    assert len(lines._written) <= Seldom.LINES_MAX

"""What `geminga doctor` says: lines with a level, and how figures are judged. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from geminga_runtime.logs import printable

OK, WARN, FAIL = LEVELS = ("ok", "warn", "fail")

CLOCK_WARN_S = 2.0
"""An HTTP date has whole seconds, and the answer takes a moment."""
CLOCK_FAIL_S = 60.0
FREE_WARN, FREE_FAIL = 0.10, 0.05
"""Shares of a bookie's disks that are free: it takes no more entries below the lower one
(`diskUsageThreshold`).
"""


NUMBER_MAX = 1e18
"""Larger ones are no figures of a server."""
TEXT_MAX = 300
"""Characters of what a server says that are shown in a sentence."""


class Line(NamedTuple):
    """One thing that was looked at, perhaps of a subscription. `check` is stable, for programs."""

    level: str
    check: str
    sentence: str
    advice: str = ""
    topic: str = ""
    subscription: str = ""


def line_of(finding: Mapping[str, object], topic: str = "", subscription: str = "") -> Line:
    """A broker's finding about a subscription; `topic` and `subscription` where it names none."""
    level = str(finding.get("level"))
    return Line(
        level if level in LEVELS else WARN,
        str(finding.get("code", "why")),
        str(finding.get("sentence")),
        str(finding.get("advice") or ""),
        str(finding.get("topic") or topic),
        str(finding.get("subscription") or subscription),
    )


_PLACES = ("topic", "subscription")


def exit_code(lines: Iterable[Line]) -> int:
    """1 if anything failed."""
    return int(any(line.level == FAIL for line in lines))


def as_text(lines: Iterable[Line]) -> str:
    """`level: sentence`, with what to do beneath it."""
    shown: list[str] = []
    for line in lines:
        shown.append(f"{line.level}: {printable(line.sentence)}")
        if line.advice and line.level != OK:
            shown.append(f"      {printable(line.advice)}")
    return "\n".join(shown)


def as_json(lines: Sequence[Line]) -> str:
    """One object: whether nothing failed, and all lines; `topic` and `subscription` where a line is
    about one.
    """
    found = [
        {name: each for name, each in line._asdict().items() if each or name not in _PLACES}
        for line in lines
    ]
    return json.dumps({"ok": not exit_code(lines), "findings": found}, ensure_ascii=False)


def clock(date: str | None, now_s: float) -> Line:
    """By the Date header of an answer, and the time half-way between request and answer."""
    try:
        # In the middle of the second that it names.
        ahead_s = parsedate_to_datetime(date or "").timestamp() + 0.5 - now_s
    except ValueError:
        return Line(WARN, "clock", "The server doesn't tell its time.")
    if abs(ahead_s) < CLOCK_WARN_S:
        return Line(OK, "clock", f"The clocks differ by less than {CLOCK_WARN_S:g} s.")
    side = "ahead of" if ahead_s > 0 else "behind"
    return Line(
        FAIL if abs(ahead_s) >= CLOCK_FAIL_S else WARN,
        "clock",
        f"The server's clock is {abs(ahead_s):.0f} s {side} this machine's.",
        "Set both by NTP: delayed messages, TTL, retention and tokens depend on them.",
    )


def space(bookie: str, free: int | None, total: int | None, read_only: str = "") -> Line:
    """Room on a bookie's disks, None if it doesn't tell; `read_only` says why it takes no writes,
    whatever its room is.
    """
    if free is None or total is None:
        return Line(
            WARN, "disk", f"Bookie {bookie} doesn't tell its free space.", "Check that it runs."
        )
    if read_only:
        return Line(
            FAIL,
            "disk",
            f"Bookie {bookie} takes no writes: {read_only[:TEXT_MAX]}. "
            f"It has {size(free)} of {size(total)} free.",
            "If its disk is full, free space on it: delete topics, shorten retention, consume "
            "backlogs, or add disks. It writes again by itself. Reading goes on.",
        )
    if total <= 0:
        return Line(OK, "disk", f"Bookie {bookie} keeps everything in memory.")
    share = free / total
    level = FAIL if share < FREE_FAIL else WARN if share < FREE_WARN else OK
    return Line(
        level,
        "disk",
        f"Bookie {bookie} has {size(free)} of {size(total)} free ({share:.0%}).",
        "Free some: shorten retention, consume backlogs, or add disks or bookies.",
    )


def size(count: int) -> str:
    """Bytes as text."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


class Backlog(NamedTuple):
    """A subscription that has unacknowledged entries."""

    topic: str
    subscription: str
    entries: int
    still: bool
    """Whether nothing is sent now."""


def backlogs(stats: object) -> list[Backlog]:
    """The subscriptions with a backlog, the largest first, of an answer of broker-stats/topics:
    statistics by namespace, bundle, domain and topic.
    """
    found = [
        backlog
        for _, bundles in members(stats)
        for _, domains in members(bundles)
        for _, topics in members(domains)
        for name, topic in members(topics)
        for backlog in backlogs_of(name, topic)
    ]
    return sorted(found, key=lambda backlog: backlog.entries, reverse=True)


def backlogs_of(topic: str, stats: object) -> list[Backlog]:
    """Those of one topic's statistics."""
    listed = stats.get("subscriptions") if isinstance(stats, Mapping) else None
    return [
        Backlog(topic, name, whole(each, "msgBacklog"), not number(each, "msgRateOut"))
        for name, each in members(listed)
        if whole(each, "msgBacklog")
    ]


def members(value: object) -> list[tuple[str, Mapping[str, object]]]:
    """The members of an object that are objects."""
    if not isinstance(value, Mapping):
        return []
    return [(str(name), each) for name, each in value.items() if isinstance(each, Mapping)]


def number(value: Mapping[str, object], name: str) -> float:
    """A member that is a number that means something, else 0."""
    found = value.get(name)
    if not isinstance(found, int | float) or not -NUMBER_MAX < found < NUMBER_MAX:
        return 0.0
    return float(found)


def whole(value: Mapping[str, object], name: str) -> int:
    """The same as a whole number."""
    return int(number(value, name))


def summary(found: Sequence[Backlog], topics: int) -> Line:
    """All backlogs together."""
    if not found:
        text = f"No subscription of the topics that are loaded here ({topics}) has a backlog."
        return Line(OK, "backlog", text)
    entries = sum(each.entries for each in found)
    worst = found[0]
    return Line(
        OK,
        "backlog",
        f"Of the topics that are loaded here ({topics}), subscriptions with a backlog: "
        f"{len(found)}; entries of all: {entries}; the largest is {worst.entries} of "
        f"{worst.subscription} on {worst.topic}.",
    )


def served_lately(count: int) -> Line:
    """Subscriptions that have a backlog, and are sent messages."""
    text = f"Subscriptions with a backlog that were sent messages lately: {count}."
    return Line(OK, "served", text)

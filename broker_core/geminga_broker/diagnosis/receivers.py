"""Findings about a subscription's consumers: permits, limits, turns and keys (pure; spec OP-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from geminga_broker.diagnosis.finding import Finding, Level
from geminga_broker.diagnosis.view import ConsumerView, SubscriptionView
from geminga_broker.diagnosis.words import NAMES_MAX, count, joined, ranges, shown_name, verb, who


class _Obstacle(NamedTuple):
    """Why a consumer can't be sent anything."""

    code: str
    applies: Callable[[ConsumerView], bool]
    sentence: str
    advice: str


_OBSTACLES = (
    _Obstacle(
        "CONSUMER_UNACKED_LIMIT",
        lambda each: each.blocked or (each.unacked_max > 0 and each.unacked >= each.unacked_max),
        "The limit of unacknowledged messages is reached by {who} ({unacked} of {limit}); sending "
        "goes on at half of it.",
        "Let it acknowledge, or raise maxUnackedMessagesPerConsumer.",
    ),
    _Obstacle(
        "NO_PERMITS",
        lambda each: each.permits <= 0,
        "No permits are left: {who} asked for no more messages.",
        "Its client's queue is full as the application doesn't receive; it must. A receiver queue "
        "of size 0 asks for each message alone.",
    ),
    _Obstacle(
        "CONNECTION_FULL",
        lambda each: not each.writable,
        "The connection's buffer is full, as its client doesn't read: {who}.",
        "Look at the client and its network.",
    ),
)


def consumers(view: SubscriptionView) -> Iterator[Finding]:
    """Consumers that can't be sent anything, if anything is still to come."""
    if view.topic.state == "terminated" and not view.backlog:
        return
    asked = view.consumers if view.active is None else (view.active,)
    level = Level.WARN if any(each.ready for each in asked) else Level.FAIL
    if not view.backlog and view.topic.persistent:
        level = Level.WARN
    rest = [each for each in asked if not each.ready]
    for code, applies, sentence, advice in _OBSTACLES:
        found = [each for each in rest if applies(each)]
        rest = [each for each in rest if not applies(each)]
        if found:
            first = found[0]
            text = sentence.format(who=who(found), unacked=first.unacked, limit=first.unacked_max)
            yield Finding(code, level, text, advice)


def turns(view: SubscriptionView) -> Iterator[Finding]:
    """Consumers that get nothing because others are preferred."""
    if view.kind == "Failover" and len(view.consumers) > 1:
        others = [each for each in view.consumers if not each.active]
        if others:
            yield Finding(
                "NOT_ACTIVE",
                Level.WARN,
                f"Only {shown_name(view.active_name)} is the active consumer; {who(others)} "
                f"{verb(others, 'waits', 'wait')} to take over.",
                "This is what Failover is for; use Shared or Key_Shared to spread messages.",
            )
    if view.kind == "Shared":
        best = min(each.priority for each in view.consumers)
        lower = [each for each in view.consumers if each.priority > best]
        if lower:
            yield Finding(
                "LOWER_PRIORITY",
                Level.WARN,
                f"Because {who(lower)} {verb(lower, 'has', 'have')} a lower priority, "
                f"{verb(lower, 'it gets', 'they get')} messages only while those of level {best} "
                "have no permits.",
                "Give all consumers the same priority level to spread messages.",
            )


def keys(view: SubscriptionView) -> Iterator[Finding]:
    """Hashes of Key_Shared."""
    stuck = view.waiting > 0 and (view.look_ahead_full or not view.has_more)
    if view.unowned_hashes:
        yield Finding(
            "UNOWNED_HASHES",
            Level.FAIL if stuck else Level.WARN,
            f"No consumer asked for the hashes {ranges(view.unowned_hashes)}, so messages with "
            "such keys wait.",
            "Start consumers whose ranges cover 0 to 65535.",
        )
    if view.draining:
        holders = joined([shown_name(each.holder) for each in view.draining[:NAMES_MAX]])
        hashes = sum(each.hashes for each in view.draining)
        unacked = sum(each.unacked for each in view.draining)
        yield Finding(
            "DRAINING_HASHES",
            Level.FAIL if stuck else Level.WARN,
            f"Keys of {count(hashes, 'hash', 'hashes')} moved to another consumer and wait until "
            f"{holders} acknowledged {count(unacked, 'entry', 'entries')}, so that the order of "
            "each key holds.",
            "Acknowledge those, or close that consumer.",
        )
    slow = [each for each in view.consumers if not each.ready]
    if view.kind == "Key_Shared" and view.waiting and slow and not view.draining:
        yield Finding(
            "KEYS_WAIT",
            Level.FAIL if stuck else Level.WARN,
            f"{count(view.waiting, 'entry', 'entries')} that were read wait, as their keys belong "
            f"to {who(slow)}, which {verb(slow, 'takes', 'take')} no more messages.",
            "Let it receive and acknowledge, or close it: its keys then go to others.",
        )
    if view.look_ahead_full:
        yield Finding(
            "LOOK_AHEAD_FULL",
            Level.FAIL,
            f"{count(view.waiting, 'entry', 'entries')} that were read wait for their keys' "
            "consumers, so the broker reads no further.",
            "Find the consumer that doesn't take or acknowledge its keys; or raise "
            "keySharedLookAheadMsgInReplayThresholdPerSubscription.",
        )


def dropping(view: SubscriptionView) -> Iterator[Finding]:
    """Messages of a non-persistent topic that nobody got."""
    if view.dropped:
        yield Finding(
            "DROPPED",
            Level.WARN,
            f"{count(view.dropped, 'message was', 'messages were')} dropped, as no consumer had "
            "a permit; a non-persistent topic keeps nothing.",
            "Receive faster, or use a persistent topic.",
        )

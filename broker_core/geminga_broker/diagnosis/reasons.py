"""Why a subscription gets nothing: findings in plain words, the most telling one first (pure; spec
OP-12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from geminga_broker.diagnosis.finding import Finding, Level
from geminga_broker.diagnosis.receivers import consumers, dropping, keys, turns
from geminga_broker.diagnosis.view import SubscriptionView, Whose
from geminga_broker.diagnosis.words import NAMES_MAX, count, joined, seconds, shown_name, who
from geminga_broker.log.reserved_cursors import COMPACTION

ERROR_CHARACTERS_MAX = 300
LATELY_S = 10.0
"""A consumer that acknowledged since then is at work."""
SLOW_READ_S = 2.0
"""A read of healthy bookies takes less: there is always one somewhere on a busy broker."""


def why(view: SubscriptionView) -> list[Finding]:
    """All findings; one at least."""
    if (gone := _gone(view)) is not None:
        return [gone]
    if not view.consumers:
        return _unused(view)
    looks = _STORED if view.topic.persistent else _PASSING
    found = [finding for look in looks for finding in look(view)]
    # Sorting is stable: of one level, the order of the looks stays.
    found.sort(key=lambda finding: _ORDER.index(finding.level))
    if not any(finding.level is Level.FAIL for finding in found):
        found.append(_fine(view))
    return found


_ORDER = list(Level)


def _gone(view: SubscriptionView) -> Finding | None:
    """The topic or subscription is going away, or its cursor is moving."""
    topic = view.topic
    if topic.moving:
        return Finding(
            "TOPIC_MOVES",
            Level.FAIL,
            "The topic's bundle is being unloaded, so its clients go to another broker now.",
            "Wait for some seconds; clients look the topic up again by themselves.",
        )
    if topic.state in ("fenced", "closed"):
        return Finding(
            "TOPIC_FENCED",
            Level.FAIL,
            "The topic is fenced: it is being unloaded or deleted, or another broker has taken it.",
            "Wait for some seconds; if it stays, unload the topic and look in the broker's log.",
        )
    if view.fenced:
        return Finding(
            "SUBSCRIPTION_FENCED",
            Level.FAIL,
            "The subscription is being deleted and takes no consumers.",
            "Subscribe again afterwards, or use another name.",
        )
    if view.seeking:
        return Finding(
            "CURSOR_MOVES",
            Level.FAIL,
            "The subscription's cursor is being reset, and its consumers reconnect.",
            "Wait for some seconds.",
        )
    return None


def _unused(view: SubscriptionView) -> list[Finding]:
    """Without consumers, which a terminated topic needs for its backlog only."""
    ends = list(_terminated(view))
    return ends if ends and not view.backlog else [_no_consumers(view), *ends]


def _no_consumers(view: SubscriptionView) -> Finding:
    if view.name == COMPACTION:
        return Finding(
            "COMPACTION",
            Level.OK,
            "The broker's compaction reads this subscription when it runs next.",
        )
    level, waits = Level.FAIL, f"the backlog of {count(view.backlog, 'entry', 'entries')} waits"
    if not view.topic.persistent:
        waits = "messages are dropped"
    elif not view.backlog:
        level, waits = Level.WARN, "there is nobody to send messages to"
    return Finding(
        "NO_CONSUMERS",
        level,
        f"No consumer is connected: {waits}.",
        "Start a consumer; if one runs, look in its log for a refused subscribe (its rights, "
        "subscription type, schema, or a limit of consumers).",
    )


# ---- what a subscription of a persistent topic may wait for ----


_LOOK_AT_BOOKIES = "Check that the bookies of its ledgers run, and their disks."
_PASS_OVER = (
    "Put its data back from a backup, or pass over it: `geminga admin topics skip -n 1`, or "
    "`autoSkipNonRecoverableData=true` for all that is lost."
)


def _stopped(view: SubscriptionView) -> Iterator[Finding]:
    if not view.running:
        yield Finding(
            "DISPATCH_STOPPED",
            Level.FAIL,
            "The dispatch task has ended: the topic's log is closed or fenced, or of a defect.",
            "Unload the topic; if it comes back, report it with the broker's log.",
        )
    if view.read_error:
        yield Finding(
            "READ_FAILS",
            Level.FAIL,
            "Reading the topic's log fails, and is tried each second: "
            f"{shown_name(view.read_error, ERROR_CHARACTERS_MAX)}.",
            _PASS_OVER if "EntryLost" in view.read_error else _LOOK_AT_BOOKIES,
        )


def _unpublished(view: SubscriptionView) -> Iterator[Finding]:
    if view.topic.no_ledger:
        yield Finding(
            "NO_LEDGER",
            Level.WARN if view.backlog else Level.FAIL,
            "Nothing can be published to the topic: its last ledger is full, or its bookies "
            "failed, and no next one could be made.",
            "Look in the broker's log: are there as many writable bookies as `persistence` wants?",
        )


def _caught_up(view: SubscriptionView) -> Iterator[Finding]:
    if view.backlog:
        return
    topic = view.topic
    if topic.producers_refused:
        yield Finding(
            "PRODUCERS_REFUSED",
            Level.FAIL,
            "Everything is acknowledged, and a backlog quota refuses new producers because of "
            "another subscription.",
            "Consume or skip the largest backlog of the topic, or raise its quota.",
        )


def _terminated(view: SubscriptionView) -> Iterator[Finding]:
    if view.topic.state == "terminated":
        left = " after the backlog" if view.backlog else ", and everything is acknowledged"
        text = f"The topic is terminated: no more messages come{left}."
        yield Finding("TERMINATED", Level.OK, text)


def _limits(view: SubscriptionView) -> Iterator[Finding]:
    if view.paused_by_broker:
        yield Finding(
            "BROKER_UNACKED_LIMIT",
            Level.FAIL,
            "All consumers of the broker together have too many unacknowledged messages, so it "
            f"pauses this subscription, which has {view.unacked} of them.",
            "Acknowledge, or raise maxUnackedMessagesPerBroker.",
        )
    if view.over_limit:
        yield Finding(
            "SUBSCRIPTION_UNACKED_LIMIT",
            Level.FAIL,
            f"The subscription's consumers have {view.unacked} unacknowledged messages; its limit "
            f"is {view.unacked_max}, and sending goes on at half of it.",
            "Acknowledge or close consumers that don't, or raise maxUnackedMessagesOnSubscription.",
        )


def _pauses(view: SubscriptionView) -> Iterator[Finding]:
    if view.failover_wait_s > 0:
        yield Finding(
            "FAILOVER_DELAY",
            Level.FAIL,
            f"{shown_name(view.active_name)} has just become the active consumer, and waits "
            f"{seconds(view.failover_wait_s)} for the last one's acknowledgements.",
            "Wait for this moment.",
        )
    for each in view.throttles:
        rate = joined(
            [f"{each.messages} messages"] * (each.messages > 0)
            + [f"{each.bytes} bytes"] * (each.bytes > 0)
        )
        whose = each.whose.value
        period = "a second" if each.period_s == 1 else f"in {each.period_s} s"
        raised = f"the {whose}'s dispatch rate"
        if each.whose is Whose.BROKER:
            raised = "dispatchThrottlingRateInMsg and dispatchThrottlingRateInByte"
        yield Finding(
            "DISPATCH_RATE",
            Level.FAIL,
            f"The {whose}'s dispatch rate, {rate} {period}, is used up; the next goes in "
            f"{seconds(each.wait_s)}.",
            f"Wait, or raise {raised}.",
        )


def _delays(view: SubscriptionView) -> Iterator[Finding]:
    if view.delayed:
        only = not view.has_more and not view.waiting and not view.unacked
        due = "" if view.due_in_s is None else f"; the first is due in {seconds(view.due_in_s)}"
        yield Finding(
            "DELAYED",
            Level.FAIL if only or view.delayed_full else Level.WARN,
            f"{count(view.delayed, 'message is', 'messages are')} delayed by the producer{due}.",
            "Wait; deliverAt and deliverAfter of the producer set the time.",
        )
    if view.delayed_full:
        yield Finding(
            "DELAYED_FULL",
            Level.FAIL,
            "Too many delayed messages are not in a snapshot yet, so the broker reads no further.",
            "Check the bookies, which store the snapshots.",
        )
    if view.chunks_full:
        yield Finding(
            "CHUNKS_FULL",
            Level.FAIL,
            "Too many chunks of large messages wait for consumers with permits.",
            "Let consumers receive, and acknowledge the parts of their large messages.",
        )


def _filters(view: SubscriptionView) -> Iterator[Finding]:
    dropped = view.rejected + view.rescheduled
    if not dropped:
        return
    names = joined([shown_name(each) for each in view.filters[:NAMES_MAX]]) or "Entry filters"
    everything = dropped >= view.filtered
    yield Finding(
        "FILTERED",
        Level.FAIL if everything else Level.WARN,
        f"{names} rejected {view.rejected} and put off {view.rescheduled} of the "
        f"{count(view.filtered, 'message', 'messages')} that were to be sent.",
        "Check the filter, and the properties that it looks at.",
    )


def _unacked(view: SubscriptionView) -> Iterator[Finding]:
    """All of the backlog is with consumers."""
    left = view.backlog - view.delayed
    if left <= 0 or view.has_more or view.waiting or not any(e.sent for e in view.consumers):
        return
    holders = [each for each in view.consumers if each.unacked or each.active]
    if any(each.acked_ago_s < LATELY_S for each in holders):
        return
    yield Finding(
        "WAITS_FOR_ACKS",
        Level.FAIL,
        f"What is left of the backlog, {count(left, 'entry', 'entries')}, was sent to "
        f"{who(holders)} and is not acknowledged.",
        "The application must receive and acknowledge them (they may wait in its client's queue, "
        "or there for the delay of negative acknowledgements); or close that consumer: then they "
        "are sent again.",
    )


def _compacted(view: SubscriptionView) -> Iterator[Finding]:
    if view.read_compacted and view.backlog and not view.has_more and not view.waiting:
        yield Finding(
            "COMPACTED",
            Level.WARN,
            "The consumer reads the compacted topic: older messages of each key are left out.",
            "Subscribe without readCompacted to get all messages.",
        )


def _quota(view: SubscriptionView) -> Iterator[Finding]:
    if view.topic.evictions:
        yield Finding(
            "QUOTA_EVICTS",
            Level.WARN,
            "A backlog quota dropped the oldest messages of the topic "
            f"{count(view.topic.evictions, 'time', 'times')}, before all were consumed.",
            "Consume faster, or raise the quota or change its policy.",
        )


def _reading(view: SubscriptionView) -> Iterator[Finding]:
    if view.reading_s >= SLOW_READ_S:
        yield Finding(
            "READING",
            Level.WARN,
            "The broker waits for the topic's log: a read of the bookies has been running for "
            f"{seconds(view.reading_s)}.",
            "If it stays so, look at the bookies' load and disks.",
        )


_Look = Callable[[SubscriptionView], Iterable[Finding]]
_STORED: tuple[_Look, ...] = (
    _stopped, _unpublished, _terminated, _caught_up, _limits, _pauses, keys, consumers, _unacked,
    _delays, _filters, _compacted, turns, _quota, _reading,
)  # fmt: skip
_PASSING: tuple[_Look, ...] = (consumers, keys, turns, dropping)


def _fine(view: SubscriptionView) -> Finding:
    """Nothing stops the subscription."""
    topic = view.topic
    if topic.persistent and view.backlog:
        text = (
            f"{count(view.backlog, 'entry is', 'entries are')} unacknowledged, and consumers "
            "take more: the subscription is being served."
        )
        return Finding("SERVED", Level.OK, text)
    if topic.state == "terminated":
        return Finding("FINE", Level.OK, "Nothing is wrong.")
    if topic.producers:
        taking = view.consumers if view.active is None else (view.active,)
        new = "are sent at once" if any(each.ready for each in taking) else "wait for a consumer"
        text = f"Everything is delivered and acknowledged; new messages {new}."
        return Finding("FINE", Level.OK, text)
    last = f" (the last one is {topic.last_position})" if topic.last_position else ""
    return Finding(
        "NOTHING_PUBLISHED",
        Level.OK,
        f"Everything is delivered and acknowledged{last}, and no producer is connected.",
        "Start a producer; check that it publishes to this very topic.",
    )

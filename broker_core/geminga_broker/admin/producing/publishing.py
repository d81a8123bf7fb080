"""Appends the messages of one request, and what came of each (spec OP-03; Apache's
`TopicsBase.publishSingleMessageToPartition`). There is no producer: they are not deduplicated, and
no limit of producers applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import trio

from geminga_broker.admin.producing.requests import Made
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError
from geminga_broker.policies.backlog_quota_manager import check_producer
from geminga_broker.policies.rate_limit import take_all
from geminga_broker.topic.admission import admitted
from geminga_broker.topic.api import PublishItem
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

ANSWER_S = 30.0
"""Messages are durable within this time, or it isn't known whether they are."""

PAUSE_S_MAX = 10.0
"""The longest wait for a rate limit."""


class Outcome(NamedTuple):
    """A message's place, or why it has none."""

    position: Position | None
    error: str = ""


async def publish(topic: Topic, messages: Sequence[Made], bytes_max: int) -> list[Outcome]:
    """Append in order; returns what came of each. Raises BrokerError if the topic takes no
    messages.
    """
    await _check(topic)
    outcomes = [Outcome(None, each.error) for each in messages]
    waiting = _accepted(topic, messages, outcomes, bytes_max)
    if not waiting:
        return outcomes
    done = trio.Event()
    answered = iter(waiting)
    left = len(waiting)

    def appended(first: Position, count: int, error: LogError | None) -> None:
        nonlocal left
        step = 1 if topic.persistent else 0
        for number in range(count):
            place = Position(first.ledger_id, first.entry_id + number * step)
            outcomes[next(answered)] = Outcome(None, str(error)) if error else Outcome(place)
        left -= count
        if not left:
            done.set()
        if error is not None:
            topic.publish_failed(error)

    try:
        topic.append([(messages[at].data, 1) for at in waiting], appended)
    except LogError as error:
        appended(Position(-1, -1), left, error)
    size = sum(len(messages[at].data) for at in waiting)
    pause_s = take_all(topic.publish_limits, len(waiting), size, trio.current_time())
    with trio.move_on_after(ANSWER_S):
        await done.wait()
    await trio.sleep(min(pause_s, PAUSE_S_MAX))
    return outcomes


async def _check(topic: Topic) -> None:
    """Raises BrokerError."""
    topic.check_open()
    if topic.terminated:
        raise BrokerError(ServerError.TopicTerminatedError, "Topic was already terminated")
    if isinstance(topic, PersistentTopic):
        await check_producer(topic)
        topic.check_open()


def _accepted(
    topic: Topic, messages: Sequence[Made], outcomes: list[Outcome], bytes_max: int
) -> list[int]:
    """The numbers of messages that may be appended; the others' outcome says why not."""

    def refuse(number: int, _code: ServerError, text: str) -> None:
        outcomes[number] = Outcome(None, text)

    items: list[PublishItem] = []
    for number, each in enumerate(messages):
        if each.error:
            continue
        if len(each.data) > bytes_max:
            outcomes[number] = Outcome(None, f"Message size is more than {bytes_max} bytes")
            continue
        items.append(PublishItem(number, memoryview(each.data)))
    taken = admitted(items, topic.options.encryption_required, topic.admission, refuse)
    for item in taken:
        text = f"not confirmed within {ANSWER_S:g} s"
        outcomes[item.sequence_id] = Outcome(None, text)
    return [item.sequence_id for item in taken]

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

RUN_MAX = 200
"""Messages that are appended without letting other tasks run."""

PAUSE_S_MAX = 10.0
"""The longest wait for a rate limit, of a request."""


class Outcome(NamedTuple):
    """A message's place, or why it has none."""

    position: Position | None
    error: str = ""


def rate_wait_s(topic: Topic) -> float:
    """Seconds until the topic is below its publish rate, which producers and requests share."""
    return take_all(topic.publish_limits, 0, 0, trio.current_time())


def above_rate() -> BrokerError:
    """What a request is told whose messages would come too fast for too long."""
    text = "The topic is above its publish rate: not stored, try again later"
    return BrokerError(ServerError.TooManyRequests, text)


async def publish(
    topic: Topic, messages: Sequence[Made], bytes_max: int, wait_until_s: float
) -> list[Outcome]:
    """Append in order; returns what came of each. While the topic is above its publish rate, waits
    until then at most (trio's clock). Raises BrokerError if the topic takes no messages at all.
    """
    await _check(topic)
    waited = False
    while wait_s := rate_wait_s(topic):
        if not waited:
            topic.publishes_limited += 1
        waited = True
        if trio.current_time() + wait_s > wait_until_s:
            raise above_rate()
        await trio.sleep(wait_s)
    if waited:
        _check_open(topic)
    # All at once, before other tasks run: whoever comes now waits until that is paid.
    given = [len(each.data) for each in messages if not each.error]
    take_all(topic.publish_limits, len(given), sum(given), trio.current_time())
    deadline = trio.current_time() + ANSWER_S
    runs: list[_Run] = []
    refused = ""
    for first in range(0, len(messages), RUN_MAX):
        run = _Run(topic, messages[first : first + RUN_MAX])
        runs.append(run)
        if first:
            await trio.lowlevel.checkpoint()
            refused = refused or _closed(topic)
        if refused:
            run.refuse(refused)
        else:
            run.append(bytes_max)
    with trio.move_on_at(deadline):
        for run in runs:
            await run.done.wait()
    return [outcome for run in runs for outcome in run.outcomes]


class _Run:
    """Messages that are appended at once."""

    def __init__(self, topic: Topic, messages: Sequence[Made]) -> None:
        self._topic = topic
        self._messages = messages
        self.outcomes = [Outcome(None, each.error) for each in messages]
        self.done = trio.Event()

    def refuse(self, text: str) -> None:
        """Append none of them."""
        self.outcomes = [Outcome(None, text)] * len(self._messages)
        self.done.set()

    def append(self, bytes_max: int) -> None:
        """Append those that the topic takes."""
        topic = self._topic
        waiting = _accepted(topic, self._messages, self.outcomes, bytes_max)
        if not waiting:
            self.done.set()
            return
        answered = iter(waiting)
        left = len(waiting)

        def appended(first: Position, count: int, error: LogError | None) -> None:
            nonlocal left
            step = 1 if topic.persistent else 0
            for number in range(count):
                place = Position(first.ledger_id, first.entry_id + number * step)
                self.outcomes[next(answered)] = (
                    Outcome(None, str(error)) if error else Outcome(place)
                )
            left -= count
            if not left:
                self.done.set()
            if error is not None:
                topic.publish_failed(error)

        try:
            topic.append([(self._messages[at].data, 1) for at in waiting], appended)
        except LogError as error:
            appended(Position(-1, -1), left, error)


def _closed(topic: Topic) -> str:
    """Why the topic takes no more messages; empty if it does."""
    try:
        _check_open(topic)
    except BrokerError as error:
        return str(error)
    return ""


def _check_open(topic: Topic) -> None:
    topic.check_open()
    if topic.terminated:
        raise BrokerError(ServerError.TopicTerminatedError, "Topic was already terminated")


async def _check(topic: Topic) -> None:
    """Raises BrokerError."""
    _check_open(topic)
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

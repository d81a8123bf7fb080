"""Chooses the next received message for a listener (spec SDK-20). Pure.

Messages of one lane are handled one at a time, in the order of arrival: on Exclusive and Failover
subscriptions a partition is a lane, on Key_Shared a key. Shared ones have no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from geminga.errors import CorruptMessageError
from geminga.message import Message
from geminga.options import ConsumerType

LaneOf = Callable[[Message], Hashable | None]


def lanes_of(kind: ConsumerType) -> LaneOf:
    """The lane of a message by the subscription's type; None: no lane."""
    if kind is ConsumerType.KEY_SHARED:
        return _key_of
    return _no_lane if kind is ConsumerType.SHARED else _topic_of


def _key_of(message: Message) -> Hashable | None:
    # The key that the broker orders by (ConsumerBase.peekMessageKey).
    try:
        ordering_key = message.ordering_key
        return message.partition_key_bytes if ordering_key is None else ordering_key
    except CorruptMessageError:
        # The listener gets the error when it reads the key.
        return None


def _topic_of(message: Message) -> Hashable | None:
    return message.topic_name


def _no_lane(message: Message) -> Hashable | None:
    return None


class Lanes:
    """Received messages that wait for their lane, and the lanes in use.

    After `put` or `done` the caller calls `take`, so that no free message is left.
    """

    def __init__(self, lane_of: LaneOf, is_wanted: Callable[[Message], bool]) -> None:
        """`is_wanted` is checked when a message's turn comes."""
        self._lane_of = lane_of
        self._is_wanted = is_wanted
        self._busy: dict[Hashable, deque[Message]] = {}
        self._ready: deque[tuple[Hashable | None, Message]] = deque()
        self.waiting = 0
        """Number of waiting messages."""

    def put(self, message: Message) -> None:
        """Add a received message."""
        lane = self._lane_of(message)
        self.waiting += 1
        if lane is None:
            self._ready.append((lane, message))
        elif lane in self._busy:
            self._busy[lane].append(message)
        else:
            self._busy[lane] = deque()
            self._ready.append((lane, message))

    def take(self) -> tuple[Hashable | None, Message] | None:
        """The next message to handle, with its lane, which is in use until `done`."""
        while self._ready:
            lane, message = self._ready.popleft()
            self.waiting -= 1
            if self._is_wanted(message):
                return lane, message
            self.done(lane)
        return None

    def done(self, lane: Hashable | None) -> None:
        """The lane's taken message is handled."""
        if lane is None:
            return
        behind = self._busy[lane]
        if behind:
            self._ready.append((lane, behind.popleft()))
        else:
            del self._busy[lane]

"""How many consumers a topic has."""

from __future__ import annotations


class Headcount:
    """Connected consumers of all subscriptions of a topic.

    It is kept: a sum over thousands of subscriptions with each SUBSCRIBE would hold the loop for
    seconds. Each change tells a subscription's whole number, so that the total can't drift.
    """

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[object, int] = {}

    def note(self, subscription: object, consumers: int) -> None:
        """The subscription has that number of consumers from now on."""
        self.total += consumers - self._of.pop(subscription, 0)
        if consumers:
            self._of[subscription] = consumers

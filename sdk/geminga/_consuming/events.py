"""What a consumer tells its program beside messages (spec SDK-30; ConsumerEventListener)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from geminga.options import ConsumerEventListener

logger = logging.getLogger("geminga")


class Events:
    """The state of one partition, and who hears of its changes."""

    def __init__(self, topic: str, listener: ConsumerEventListener | None) -> None:
        self._topic = topic
        self._listener = listener or ConsumerEventListener()
        self._is_active: bool | None = None
        self.reached_end = False
        """Whether the topic is terminated and everything in it was delivered."""

    def active(self, is_active: bool) -> None:
        """The broker says whether messages come here; only a change is told."""
        if is_active is self._is_active:
            return
        self._is_active = is_active
        listener = self._listener
        self._tell(listener.became_active if is_active else listener.became_inactive)

    def detached(self) -> None:
        """The broker may give the messages to another consumer now."""
        if self._is_active:
            self.active(False)
        self._is_active = None

    def ended(self) -> None:
        """No message will come any more."""
        if not self.reached_end:
            self.reached_end = True
            self._tell(self._listener.reached_end_of_topic)

    def moved(self) -> None:
        """A seek: messages may come again."""
        self.reached_end = False

    def _tell(self, call: Callable[[str], object]) -> None:
        try:
            call(self._topic)
        except Exception:
            logger.exception("%s: a listener failed", self._topic)

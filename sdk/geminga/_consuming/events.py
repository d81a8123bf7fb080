"""Events that a consumer reports to its program (spec SDK-30; ConsumerEventListener)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from geminga._options.callbacks import FAILURES
from geminga.options import ConsumerEventListener

logger = logging.getLogger("geminga")


class Events:
    """The state of one partition; reports its changes to the listener."""

    def __init__(self, topic: str, listener: ConsumerEventListener | None) -> None:
        self._topic = topic
        self._listener = listener or ConsumerEventListener()
        self._is_active: bool | None = None
        self.reached_end = False
        """Whether the topic is terminated and everything in it was delivered."""

    def active(self, is_active: bool) -> None:
        """Set whether this is the active consumer; only a change is reported."""
        if is_active is self._is_active:
            return
        self._is_active = is_active
        listener = self._listener
        self._tell(listener.became_active if is_active else listener.became_inactive)

    def detached(self) -> None:
        """The connection is lost: another consumer may be active now."""
        if self._is_active:
            self.active(False)
        self._is_active = None

    def ended(self) -> None:
        """The last message was delivered."""
        if not self.reached_end:
            self.reached_end = True
            self._tell(self._listener.reached_end_of_topic)

    def moved(self) -> None:
        """After a seek, messages may be delivered again."""
        self.reached_end = False

    def _tell(self, call: Callable[[str], object]) -> None:
        try:
            call(self._topic)
        except FAILURES:
            logger.exception("%s: a listener failed", self._topic)

"""The state shared by the consumers of one subscription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from geminga._connection.core import Core
from geminga._consuming.inbox import Inbox
from geminga._consuming.interceptors import ConsumerInterceptors
from geminga._consuming.subscribe import Subscription
from geminga._dead_letter.sender import DeadLetterSender


@dataclass(frozen=True)
class ConsumerContext:
    """Shared by the consumers of all partitions. `notify(messages)` is called after messages were
    added to the inbox, and with 0 when a consumer ended, or a message must be requested again.
    """

    core: Core
    subscription: Subscription
    inbox: Inbox
    notify: Callable[[int], None]
    dead_letter_sender: DeadLetterSender | None = None
    interceptors: ConsumerInterceptors | None = None

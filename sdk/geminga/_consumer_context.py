"""What the consumers of one subscription share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from geminga._consumer_interceptors import ConsumerInterceptors
from geminga._core import Core
from geminga._inbox import Inbox
from geminga._letterbox import Letterbox
from geminga._subscribe import Subscription


@dataclass(frozen=True)
class ConsumerContext:
    """What the consumers of all partitions share. `notify(messages)` is called when messages were
    added to the inbox, and with 0 when one of them is over, or a message must be asked for anew.
    """

    core: Core
    subscription: Subscription
    inbox: Inbox
    notify: Callable[[int], None]
    letterbox: Letterbox | None = None
    interceptors: ConsumerInterceptors | None = None

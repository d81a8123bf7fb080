"""The right that a command or a REST call needs (Apache's `TopicOperation`, ...).

A need names its operation as Apache's refusals do.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Scope(Enum):
    """The kind of resource that an operation needs a right on."""

    PUBLIC = auto()
    """Everybody, without credentials."""
    ROLE = auto()
    """Every authenticated client."""
    HELD = auto()
    """Belongs to a producer, consumer or watcher that was allowed when it was opened."""
    SUPER_USER = auto()
    CLUSTER = auto()
    BROKER = auto()
    TENANT_ADMIN = auto()
    TENANT = auto()
    NAMESPACE = auto()
    NAMESPACE_POLICY = auto()
    TOPIC = auto()
    TOPIC_POLICY = auto()


class Need(NamedTuple):
    """A scope, and the operation in it."""

    scope: Scope
    operation: str = ""
    policy: str = ""
    """Of policies, which one."""


class Place(NamedTuple):
    """The resource of an operation; parts that its scope does not use are empty."""

    tenant: str = ""
    namespace: str = ""
    """`tenant/namespace`."""
    topic: str = ""
    """Full name."""
    subscription: str = ""
    name: str = ""
    """Of a cluster or broker."""


PRODUCE, CONSUME, PACKAGES = "produce", "consume", "packages"
ACTIONS = (PRODUCE, CONSUME, "functions", "sources", "sinks", PACKAGES)
"""Actions that can be granted (Apache's `AuthAction`)."""

_CONSUMERS = (
    "GET_SUBSCRIPTIONS",
    "CONSUME",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "SKIP",
    "EXPIRE_MESSAGES",
    "PEEK_MESSAGES",
    "RESET_CURSOR",
    "GET_BACKLOG_SIZE",
    "SET_REPLICATED_SUBSCRIPTION_STATUS",
    "GET_REPLICATED_SUBSCRIPTION_STATUS",
)

TOPIC_ACTIONS: dict[str, tuple[str, ...]] = {
    "LOOKUP": (PRODUCE, CONSUME),
    "GET_STATS": (PRODUCE, CONSUME),
    "GET_METADATA": (PRODUCE, CONSUME),
    "PRODUCE": (PRODUCE,),
} | dict.fromkeys(_CONSUMERS, (CONSUME,))
"""Any one of these actions allows the operation on a topic; others are for the tenant's admins."""

NAMESPACE_ACTIONS: dict[str, tuple[str, ...]] = {
    "PACKAGES": (PACKAGES,),
    "GET_TOPIC": (PRODUCE, CONSUME),
    "GET_TOPICS": (PRODUCE, CONSUME),
    "GET_BUNDLE": (PRODUCE, CONSUME),
    "UNSUBSCRIBE": (CONSUME,),
    "TRIM_TOPIC": (CONSUME,),
    "CLEAR_BACKLOG": (CONSUME,),
}
"""The same for operations on a namespace."""

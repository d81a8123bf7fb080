"""The right that a command or a REST call needs (Apache's `TopicOperation`, ...).

A need has the operation's name in Apache's refusals.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Scope(Enum):
    """The kind of resource that an operation needs a right on."""

    PUBLIC = auto()
    """Everybody, also without credentials."""
    ROLE = auto()
    """Every authenticated client."""
    HELD = auto()
    """For a producer, consumer or watcher whose right was checked when it was opened."""
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
    """The policy's name."""


class Place(NamedTuple):
    """The resource of an operation; parts that its scope does not use are empty."""

    tenant: str = ""
    namespace: str = ""
    """`tenant/namespace`."""
    topic: str = ""
    """Full name."""
    subscription: str = ""
    name: str = ""
    """Name of a cluster or broker."""


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
"""Operation on a topic -> sufficient actions; other operations are for tenant admins."""

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

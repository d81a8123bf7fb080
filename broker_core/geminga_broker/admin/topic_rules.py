"""Which broker answers a call of a topic's path: one table (spec CL-05, OP-03; Apache's
PersistentTopicsBase).

By method and the path after the topic. A test holds that no route of a topic is missing; at run
time one would be answered by the owner.
"""

from __future__ import annotations

from enum import Enum, auto

from geminga_broker.authz.routes import POLICIES


class Where(Enum):
    """The brokers that may answer."""

    ANYWHERE = auto()
    """All of them: what is asked for stands in the metadata store."""
    OWNER = auto()
    """The owner of the topic's bundle; others redirect to it."""
    PARTITIONS = auto()
    """The owner; the call of a partitioned topic is made on each of its partitions, wherever that
    is, by any broker.
    """
    OWNER_IF_IN_MEMORY = auto()
    """The owner for a non-persistent topic without partitions, which is in its memory only."""
    POLICIES = auto()
    """The owner of the topic or of its first partition: it reads, changes and writes policies one
    call after another.
    """


_SUBSCRIPTION = "/subscription/{subscription}"

TOPICS: dict[str, Where] = {
    "PUT ": Where.OWNER,
    "DELETE ": Where.OWNER,
    "GET /partitions": Where.OWNER_IF_IN_MEMORY,
    "PUT /partitions": Where.OWNER_IF_IN_MEMORY,
    "POST /partitions": Where.ANYWHERE,
    "DELETE /partitions": Where.ANYWHERE,
    "POST /createMissedPartitions": Where.ANYWHERE,
    "POST /terminate": Where.OWNER,
    "POST /terminate/partitions": Where.ANYWHERE,
    "PUT /unload": Where.PARTITIONS,
    "PUT /compaction": Where.PARTITIONS,
    "GET /compaction": Where.OWNER,
    "DELETE /truncate": Where.PARTITIONS,
    "GET /lastMessageId": Where.OWNER,
    "GET /stats": Where.OWNER,
    "GET /internalStats": Where.OWNER,
    "GET /partitioned-stats": Where.ANYWHERE,
    "GET /partitioned-internalStats": Where.ANYWHERE,
    "GET /subscriptions": Where.PARTITIONS,
    "GET /permissions": Where.ANYWHERE,
    "POST /permissions/{role}": Where.OWNER_IF_IN_MEMORY,
    "DELETE /permissions/{role}": Where.OWNER_IF_IN_MEMORY,
    f"PUT {_SUBSCRIPTION}": Where.PARTITIONS,
    f"DELETE {_SUBSCRIPTION}": Where.PARTITIONS,
    f"GET {_SUBSCRIPTION}/properties": Where.PARTITIONS,
    f"PUT {_SUBSCRIPTION}/properties": Where.PARTITIONS,
    f"POST {_SUBSCRIPTION}/skip_all": Where.PARTITIONS,
    f"POST {_SUBSCRIPTION}/skip/{{count}}": Where.OWNER,
    f"POST {_SUBSCRIPTION}/resetcursor": Where.OWNER,
    f"POST {_SUBSCRIPTION}/resetcursor/{{timestamp}}": Where.PARTITIONS,
    f"POST {_SUBSCRIPTION}/expireMessages/{{seconds}}": Where.PARTITIONS,
    f"POST {_SUBSCRIPTION}/expireMessages": Where.OWNER,
    f"POST {_SUBSCRIPTION}/analyzeBacklog": Where.OWNER,
    f"GET {_SUBSCRIPTION}/position/{{position}}": Where.OWNER,
    f"GET {_SUBSCRIPTION}/why": Where.PARTITIONS,
    "GET /ledger/{ledger}/entry/{entry}": Where.OWNER,
    "GET /examinemessage": Where.OWNER,
    "GET /messageid/{timestamp}": Where.OWNER,
    "PUT /backlogSize": Where.OWNER,
    "GET /properties": Where.OWNER,
    "PUT /properties": Where.OWNER,
    "DELETE /properties": Where.OWNER,
    "GET /internal-info": Where.ANYWHERE,
    "GET /backlog": Where.ANYWHERE,
    "PUT /offload": Where.OWNER,
    "GET /offload": Where.OWNER,
    "DELETE /policies": Where.POLICIES,
    f"GET {_SUBSCRIPTION}/replicatedSubscriptionStatus": Where.PARTITIONS,
    f"POST {_SUBSCRIPTION}/replicatedSubscriptionStatus": Where.PARTITIONS,
    "POST /trim": Where.PARTITIONS,
    "POST /all_subscription/expireMessages/{seconds}": Where.PARTITIONS,
}

_BASES = tuple(
    f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    for domain in ("persistent", "non-persistent")
)
_SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}/"


def place_of(method: str, path: str) -> Where | None:
    """Where a route is answered; None for paths of no topic, and for those that the table lacks."""
    if path.startswith(_SCHEMAS):
        return Where.OWNER
    for base in _BASES:
        if path.startswith(base):
            return _place_of_topic(method, path.removeprefix(base))
    return None


def is_of_topic(path: str) -> bool:
    """Whether a route names a topic (lookups do too, but ask for the owner themselves)."""
    return path.startswith((*_BASES, _SCHEMAS))


def _place_of_topic(method: str, rest: str) -> Where | None:
    if (found := TOPICS.get(f"{method} {rest}")) is not None:
        return found
    name = rest.removeprefix("/").removeprefix("{subscription}/")
    return Where.POLICIES if name.partition("/")[0] in POLICIES else None

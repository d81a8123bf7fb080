"""Whether a subscription's place is replicated to other clusters, as Apache's brokers store it with
the cursor (`PersistentSubscription.setReplicated`). This broker replicates nothing itself.
"""

from __future__ import annotations

from typing import Protocol

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Cursor, LogError
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

REPLICATED = "pulsar.replicated.subscription"
"""The property of the cursor of a replicated subscription."""


class Replicable(Protocol):
    """A subscription."""

    cursor: Cursor
    replicated: bool


async def set_replicated(subscription: Replicable, replicated: bool) -> None:
    """Change it; durable on return. Raises BrokerError PersistenceError: it may be changed later,
    too, with the next state of the cursor that is written.
    """
    cursor = subscription.cursor
    known = cursor.properties
    properties = {name: known[name] for name in known if name != REPLICATED}
    if replicated:
        properties[REPLICATED] = 1
    subscription.replicated = replicated
    cursor.ack_cumulative(cursor.mark_delete, properties=properties)
    try:
        await cursor.persist()
    except LogError as error:
        raise BrokerError(ServerError.PersistenceError, str(error)) from error

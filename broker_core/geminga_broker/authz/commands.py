"""The right that each command of the binary protocol needs.

A command that is missing here is not served: `session.table` takes its needs from this table, and a
test compares the two. Unlike in Apache 4.0, GET_SCHEMA and GET_OR_CREATE_SCHEMA are not open to all
authenticated clients.
"""

from __future__ import annotations

from geminga_broker.authz.needs import Need, Scope
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

_C = BaseCommand.Type
_HELD = Need(Scope.HELD)
_OPEN = Need(Scope.PUBLIC)


def _topic(operation: str) -> Need:
    return Need(Scope.TOPIC, operation)


COMMANDS: dict[int, Need] = {
    _C.CONNECT: _OPEN,
    _C.AUTH_RESPONSE: _OPEN,
    _C.PING: _OPEN,
    _C.PONG: _OPEN,
    _C.PARTITIONED_METADATA: _topic("LOOKUP"),
    _C.LOOKUP: _topic("LOOKUP"),
    _C.GET_TOPICS_OF_NAMESPACE: Need(Scope.NAMESPACE, "GET_TOPICS"),
    _C.WATCH_TOPIC_LIST: Need(Scope.NAMESPACE, "GET_TOPICS"),
    _C.WATCH_TOPIC_LIST_CLOSE: _HELD,
    _C.PRODUCER: _topic("PRODUCE"),
    _C.SEND: _HELD,
    _C.CLOSE_PRODUCER: _HELD,
    _C.SUBSCRIBE: _topic("CONSUME"),
    _C.FLOW: _HELD,
    _C.ACK: _HELD,
    _C.REDELIVER_UNACKNOWLEDGED_MESSAGES: _HELD,
    _C.SEEK: _HELD,
    _C.UNSUBSCRIBE: _HELD,
    _C.CLOSE_CONSUMER: _HELD,
    _C.GET_LAST_MESSAGE_ID: _HELD,
    _C.CONSUMER_STATS: _HELD,
    _C.GET_SCHEMA: _topic("LOOKUP"),
    _C.GET_OR_CREATE_SCHEMA: _topic("PRODUCE"),
    _C.TC_CLIENT_CONNECT_REQUEST: Need(Scope.ROLE),
    _C.NEW_TXN: Need(Scope.ROLE),
    _C.ADD_PARTITION_TO_TXN: Need(Scope.ROLE),
    _C.ADD_SUBSCRIPTION_TO_TXN: Need(Scope.ROLE),
    _C.END_TXN: Need(Scope.ROLE),
    _C.END_TXN_ON_PARTITION: Need(Scope.SUPER_USER),
    _C.END_TXN_ON_SUBSCRIPTION: Need(Scope.SUPER_USER),
}

REFUSALS: dict[int, str] = {
    _C.PARTITIONED_METADATA: "Client is not authorized to Get Partition Metadata",
    _C.LOOKUP: "Client is not authorized to Lookup",
    _C.GET_TOPICS_OF_NAMESPACE: "Client is not authorized to GetTopicsOfNamespace",
    _C.WATCH_TOPIC_LIST: "Client is not authorized to watchTopicList",
    _C.PRODUCER: "Client is not authorized to Produce",
    _C.SUBSCRIBE: "Client is not authorized to subscribe",
    _C.GET_SCHEMA: "Client is not authorized to get the schema",
    _C.GET_OR_CREATE_SCHEMA: "Client is not authorized to create the schema",
}
"""Error texts for unauthorized clients; for a proxy's client with the prefix "Proxy"."""

INVALID_ROLES = "Invalid roles."
"""Error text for a connection with an invalid original principal."""

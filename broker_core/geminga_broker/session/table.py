"""Which function handles which command (spec PR-05)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from geminga_broker.authz.commands import COMMANDS
from geminga_broker.session import (
    connecting,
    consumers,
    lookups,
    producers,
    schema_commands,
    txn_commands,
)
from geminga_broker.session.authorization import authorize
from geminga_broker.session.session import Session
from geminga_protocol.commands import answers, lookup, schemas
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError

Handler = Callable[[Session, Any], None]
Refusal = Callable[[int, ServerError, str], bytes]


class Route(NamedTuple):
    """A handler takes effect at once; what needs storage it spawns."""

    run: Handler
    before_connect: bool = False


def _spawned(kind: int, run: Callable[[Session, Any], Awaitable[None]], refusal: Refusal) -> Route:
    """Run in a task if the client may; failures are told by `refusal` with the command's request
    id.
    """

    async def run_allowed(session: Session, command: Any) -> None:
        await authorize(session, kind, command)
        await run(session, command)

    def start(session: Session, command: Any) -> None:
        session.spawn(partial(refusal, command.request_id), run_allowed, session, command)

    return Route(start)


_C = BaseCommand.Type

_HANDLED: dict[int, Route] = {
    _C.CONNECT: Route(connecting.handle_connect, before_connect=True),
    _C.AUTH_RESPONSE: Route(connecting.handle_auth_response, before_connect=True),
    _C.PING: Route(connecting.handle_ping, before_connect=True),
    _C.PONG: Route(connecting.handle_pong, before_connect=True),
    _C.PARTITIONED_METADATA: _spawned(
        _C.PARTITIONED_METADATA, lookups.partitioned_metadata, lookup.partitioned_metadata_error
    ),
    _C.LOOKUP: _spawned(_C.LOOKUP, lookups.lookup_topic, lookup.lookup_error),
    _C.GET_TOPICS_OF_NAMESPACE: _spawned(
        _C.GET_TOPICS_OF_NAMESPACE, lookups.topics_of_namespace, answers.error
    ),
    _C.WATCH_TOPIC_LIST: _spawned(_C.WATCH_TOPIC_LIST, lookups.watch_topic_list, answers.error),
    _C.WATCH_TOPIC_LIST_CLOSE: Route(lookups.close_watcher),
    _C.PRODUCER: Route(producers.open_producer),
    _C.CLOSE_PRODUCER: Route(producers.close_producer),
    _C.SUBSCRIBE: Route(consumers.subscribe),
    _C.FLOW: Route(consumers.flow),
    _C.ACK: Route(consumers.ack),
    _C.REDELIVER_UNACKNOWLEDGED_MESSAGES: Route(consumers.redeliver),
    _C.SEEK: _spawned(_C.SEEK, consumers.seek, answers.error),
    _C.UNSUBSCRIBE: _spawned(_C.UNSUBSCRIBE, consumers.unsubscribe, answers.error),
    _C.CLOSE_CONSUMER: Route(consumers.close_consumer),
    _C.GET_LAST_MESSAGE_ID: _spawned(
        _C.GET_LAST_MESSAGE_ID, consumers.last_message_id, answers.error
    ),
    _C.CONSUMER_STATS: Route(consumers.consumer_stats),
    _C.GET_SCHEMA: _spawned(_C.GET_SCHEMA, schema_commands.get_schema, schemas.get_schema_error),
    _C.GET_OR_CREATE_SCHEMA: _spawned(
        _C.GET_OR_CREATE_SCHEMA,
        schema_commands.get_or_create_schema,
        schemas.get_or_create_schema_error,
    ),
    _C.TC_CLIENT_CONNECT_REQUEST: Route(txn_commands.tc_client_connect),
    _C.NEW_TXN: Route(txn_commands.new_txn),
    _C.ADD_PARTITION_TO_TXN: Route(txn_commands.add_partition),
    _C.ADD_SUBSCRIPTION_TO_TXN: Route(txn_commands.add_subscription),
    _C.END_TXN: Route(txn_commands.end_txn),
    _C.END_TXN_ON_PARTITION: Route(txn_commands.end_on_partition),
    _C.END_TXN_ON_SUBSCRIPTION: Route(txn_commands.end_on_subscription),
}

ROUTES: dict[int, Route] = {kind: route for kind, route in _HANDLED.items() if kind in COMMANDS}
"""What is served: only commands of which it is known who may send them."""

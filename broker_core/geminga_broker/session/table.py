"""The handler of each command, with its authorization and bounds (spec PR-05, PR-16, PX-22).

Each command is handled `Direct`, `InTask` or as an `Opening`. `build` adds the check of the
client's right to each handler, and raises if a handler would run without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from geminga_broker.authz.commands import COMMANDS
from geminga_broker.authz.needs import Need, Scope
from geminga_broker.errors import BrokerError
from geminga_broker.session import (
    connecting,
    consumers,
    lookups,
    producers,
    schema_commands,
    txn_commands,
)
from geminga_broker.session.authorization import authorize, is_allowed_now
from geminga_broker.session.limits import BOUNDED_ELSEWHERE, check, checks_of
from geminga_broker.session.session import Session, SessionClosed, refused
from geminga_broker.session.turns import count_start
from geminga_protocol.commands import answers, lookup, schemas
from geminga_protocol.frames import SUBMESSAGE
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError

Handler = Callable[[Session, Any], None]
Refusal = Callable[[Any, ServerError, str], bytes]
"""Makes the response to a refused command."""


class Route(NamedTuple):
    """A command's handler, which is synchronous: work that needs storage runs in a task."""

    run: Handler
    before_connect: bool = False


class UnguardedHandler(Exception):
    """A command would be handled without a check of the client's right."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Runs at once; for commands that need no right, or are for an open producer or consumer."""

    run: Handler

    def guarded(self, kind: int, need: Need) -> Handler:
        """The handler itself. Raises UnguardedHandler."""
        if need.scope not in (Scope.PUBLIC, Scope.HELD):
            raise UnguardedHandler(f"{SUBMESSAGE[kind]} needs {need}")
        return self.run

    def refuse(self, command: Any, code: ServerError, text: str) -> bytes:
        """ERROR, for a command with a request id. Raises SessionClosed for others."""
        return _error(command, code, text)


@dataclass(frozen=True, slots=True)
class InTask:
    """Runs in a task if the client has the right; `refuse` makes the response to a failure.
    `at_once` answers without a task if it can, and returns whether it did.
    """

    run: Callable[[Session, Any], Awaitable[None]]
    refuse: Refusal
    at_once: Callable[[Session, Any], bool] | None = None

    def guarded(self, kind: int, need: Need) -> Handler:
        """A handler that checks the right, then runs the command."""

        async def run_allowed(session: Session, command: Any) -> None:
            await authorize(session, kind, command)
            await self.run(session, command)

        at_once = self.at_once

        def background_route(session: Session, command: Any) -> None:
            refuse = partial(self.refuse, command)
            if at_once is not None:
                try:
                    if is_allowed_now(session, kind, command) and at_once(session, command):
                        return
                except Exception as error:
                    session.write(refused(refuse, self.run, error))
                    return
            session.spawn(refuse, run_allowed, session, command, size_bytes=command.ByteSize())

        return background_route


@dataclass(frozen=True, slots=True)
class Opening:
    """Opens a producer or consumer. The handler checks the right itself, again after each wait;
    `Registry.finish` requires that.
    """

    run: Handler

    def guarded(self, kind: int, need: Need) -> Handler:
        """The handler itself. Raises UnguardedHandler for a command that opens nothing."""
        if kind not in (_C.PRODUCER, _C.SUBSCRIBE):
            raise UnguardedHandler(f"{SUBMESSAGE[kind]} opens nothing")
        return self.run

    def refuse(self, command: Any, code: ServerError, text: str) -> bytes:
        """ERROR."""
        return _error(command, code, text)


Handling = Direct | InTask | Opening


def build(
    handled: Mapping[int, Handling], needs: Mapping[int, Need] = COMMANDS
) -> dict[int, Route]:
    """The routes. Raises UnguardedHandler, and LookupError for a field without a bound."""
    routes = {}
    for kind, handling in handled.items():
        need = needs.get(kind)
        if need is None:
            raise UnguardedHandler(f"{SUBMESSAGE[kind]} has no entry in COMMANDS")
        run = handling.guarded(kind, need)
        if not isinstance(handling, Direct):
            run = _in_turns(run)
        if kind not in BOUNDED_ELSEWHERE:
            run = _bounded(kind, handling, run)
        routes[kind] = Route(run, before_connect=need.scope is Scope.PUBLIC)
    return routes


def _bounded(kind: int, handling: Handling, run: Handler) -> Handler:
    body = BaseCommand.DESCRIPTOR.fields_by_name[SUBMESSAGE[kind]].message_type
    assert body is not None
    checks = checks_of(cast(Descriptor, body))
    if not checks:
        return run

    def run_bounded(session: Session, command: Message) -> None:
        try:
            check(checks, command)
        except BrokerError as error:
            session.write(handling.refuse(command, error.code, error.message))
        else:
            run(session, command)

    return run_bounded


def _in_turns(run: Handler) -> Handler:
    def begin(session: Session, command: Any) -> None:
        run(session, command)
        count_start(session)

    return begin


def _error(command: Any, code: ServerError, text: str) -> bytes:
    if "request_id" not in command.DESCRIPTOR.fields_by_name:
        raise SessionClosed(text)
    return answers.error(command.request_id, code, text)


def _by_id(refusal: Callable[[int, ServerError, str], bytes]) -> Refusal:
    def refuse(command: Any, code: ServerError, text: str) -> bytes:
        return refusal(command.request_id, code, text)

    return refuse


_C = BaseCommand.Type
_in_task = partial(InTask, refuse=_by_id(answers.error))

_HANDLED: dict[int, Handling] = {
    _C.CONNECT: Direct(connecting.handle_connect),
    _C.AUTH_RESPONSE: Direct(connecting.handle_auth_response),
    _C.PING: Direct(connecting.handle_ping),
    _C.PONG: Direct(connecting.handle_pong),
    _C.PARTITIONED_METADATA: InTask(
        lookups.partitioned_metadata, _by_id(lookup.partitioned_metadata_error)
    ),
    _C.LOOKUP: InTask(lookups.lookup_topic, _by_id(lookup.lookup_error), lookups.lookup_known),
    _C.GET_TOPICS_OF_NAMESPACE: _in_task(lookups.topics_of_namespace),
    _C.WATCH_TOPIC_LIST: _in_task(lookups.watch_topic_list),
    _C.WATCH_TOPIC_LIST_CLOSE: Direct(lookups.close_watcher),
    _C.PRODUCER: Opening(producers.open_producer),
    _C.CLOSE_PRODUCER: Direct(producers.close_producer),
    _C.SUBSCRIBE: Opening(consumers.subscribe),
    _C.FLOW: Direct(consumers.flow),
    _C.ACK: Direct(consumers.ack),
    _C.REDELIVER_UNACKNOWLEDGED_MESSAGES: Direct(consumers.redeliver),
    _C.SEEK: _in_task(consumers.seek),
    _C.UNSUBSCRIBE: _in_task(consumers.unsubscribe),
    _C.CLOSE_CONSUMER: Direct(consumers.close_consumer),
    _C.GET_LAST_MESSAGE_ID: _in_task(consumers.last_message_id),
    _C.CONSUMER_STATS: Direct(consumers.consumer_stats),
    _C.GET_SCHEMA: InTask(schema_commands.get_schema, _by_id(schemas.get_schema_error)),
    _C.GET_OR_CREATE_SCHEMA: InTask(
        schema_commands.get_or_create_schema, _by_id(schemas.get_or_create_schema_error)
    ),
    **{kind: InTask(txn_commands.refuse, answer) for kind, answer in txn_commands.ANSWERS.items()},
}

ROUTES = build(_HANDLED)
"""All supported commands, except SEND (`publishing`)."""

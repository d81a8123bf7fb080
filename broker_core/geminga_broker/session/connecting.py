"""CONNECT, AUTH_RESPONSE, PING and PONG (spec PR-06, PR-12)."""

from __future__ import annotations

from functools import partial

from geminga_broker.session.authentication import SERVER_VERSION, Authentication
from geminga_broker.session.session import Session, SessionClosed
from geminga_protocol.commands import connection
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

MAX_MESSAGE_SIZE_VERSION = 14
"""First protocol version with the message size in CONNECTED."""

FEATURES = FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
)
"""This broker's features beyond the protocol version."""


def handle_connect(session: Session, command: CommandConnect) -> None:
    """Agree on a version, and authenticate the client if the broker requires it.

    Raises SessionClosed on a second CONNECT.
    """
    if session.connected or session.respond is not None:
        raise SessionClosed("second CONNECT")
    session.client_version = command.client_version
    session.protocol_version = min(command.protocol_version, connection.PROTOCOL_VERSION)
    # A copy, as a submessage keeps the whole message alive.
    session.features.CopyFrom(command.feature_flags)
    authenticator = session.service.authenticator
    if authenticator is None or session.preauthenticated:
        _accept(session, command.protocol_version)
        return
    accept = partial(_accept, session, command.protocol_version)
    authentication = Authentication(session, authenticator, command, accept)
    session.respond = authentication.respond
    authentication.begin(command)


def _accept(session: Session, client_version: int) -> None:
    session.connected = True
    session.service.connections.accepted += 1
    tell_size = client_version >= MAX_MESSAGE_SIZE_VERSION
    size = session.service.config.network.max_message_size_bytes
    session.write(
        connection.connected(
            SERVER_VERSION,
            protocol_version=session.protocol_version,
            max_message_size=size if tell_size else None,
            feature_flags=FEATURES,
        )
    )


def handle_auth_response(session: Session, command: CommandAuthResponse) -> None:
    """The client's next step, or fresh credentials; ignored without authentication.
    Raises SessionClosed before CONNECT.
    """
    if command.client_version:
        session.client_version = command.client_version
    if session.respond is not None:
        response = command.response
        session.respond(response.auth_method_name, response.auth_data)
    elif not session.connected:
        raise SessionClosed("AUTH_RESPONSE before CONNECT")


def handle_ping(session: Session, command: CommandPing) -> None:
    """Answer with PONG."""
    session.write(connection.PONG)


def handle_pong(session: Session, command: CommandPong) -> None:
    """Nothing to do: the reader has noted that the client is alive."""

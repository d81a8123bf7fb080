"""CONNECT, AUTH_RESPONSE, PING and PONG (spec PR-06, PR-12)."""

from __future__ import annotations

from importlib.metadata import version

from geminga_broker.session.session import Session, SessionClosed
from geminga_protocol.commands import connection
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

SERVER_VERSION = f"Geminga {version('geminga')}"

MAX_MESSAGE_SIZE_VERSION = 14
"""First protocol version whose clients learn the message size from CONNECTED."""

FEATURES = FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
)
"""What this broker can do beyond the protocol version."""


def handle_connect(session: Session, command: CommandConnect) -> None:
    """Agree on a version. Raises SessionClosed on a second CONNECT.

    Every client is let in: authentication is off, whatever method and data it brings.
    """
    if session.connected:
        raise SessionClosed("a second CONNECT")
    session.connected = True
    session.client_version = command.client_version
    session.protocol_version = min(command.protocol_version, connection.PROTOCOL_VERSION)
    session.features = command.feature_flags
    tell_size = command.protocol_version >= MAX_MESSAGE_SIZE_VERSION
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
    """Nothing was asked, so there is nothing to check; the client's version is learnt again."""
    if command.client_version:
        session.client_version = command.client_version


def handle_ping(session: Session, command: CommandPing) -> None:
    """The client asks whether we live."""
    session.write(connection.PONG)


def handle_pong(session: Session, command: CommandPong) -> None:
    """The client lives; that something came is noted by the reader."""

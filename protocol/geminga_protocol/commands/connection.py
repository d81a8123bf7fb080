"""Hand-shake, authentication and keep-alive (spec PR-06, PR-12)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_protocol.encode import framed
from geminga_protocol.pb.pulsar_api_pb2 import (
    AuthData,
    CommandAuthChallenge,
    CommandAuthResponse,
    CommandConnect,
    CommandConnected,
    CommandPing,
    CommandPong,
    FeatureFlags,
    ProtocolVersion,
)

PROTOCOL_VERSION: int = ProtocolVersion.v21
"""Our version; both sides use the lower one of client and broker."""

PING = framed(CommandPing())
PONG = framed(CommandPong())


@dataclass(frozen=True, slots=True)
class Original:
    """The client behind a proxy (PIP-9): its principal and credentials."""

    principal: str | None = None
    auth_data: str | None = None
    auth_method: str | None = None


NOBODY = Original()


def connect(
    client_version: str,
    *,
    auth_method_name: str | None = None,
    auth_data: bytes | None = None,
    protocol_version: int = PROTOCOL_VERSION,
    feature_flags: FeatureFlags | None = None,
    proxy_to_broker_url: str | None = None,
    original: Original = NOBODY,
    proxy_version: str | None = None,
) -> bytes:
    """CONNECT, the first frame of every connection."""
    body = CommandConnect(
        client_version=client_version,
        auth_method_name=auth_method_name,
        auth_data=auth_data,
        protocol_version=protocol_version,
        proxy_to_broker_url=proxy_to_broker_url,
        original_principal=original.principal,
        original_auth_data=original.auth_data,
        original_auth_method=original.auth_method,
        feature_flags=feature_flags,
        proxy_version=proxy_version,
    )
    return framed(body)


def connected(
    server_version: str,
    *,
    protocol_version: int = PROTOCOL_VERSION,
    max_message_size: int | None = None,
    feature_flags: FeatureFlags | None = None,
) -> bytes:
    """CONNECTED; `protocol_version` is the lower one, `max_message_size` is in bytes."""
    body = CommandConnected(
        server_version=server_version,
        protocol_version=protocol_version,
        max_message_size=max_message_size,
        feature_flags=feature_flags,
    )
    return framed(body)


def auth_challenge(
    server_version: str,
    auth_method_name: str,
    auth_data: bytes,
    *,
    protocol_version: int = PROTOCOL_VERSION,
) -> bytes:
    """AUTH_CHALLENGE: the broker asks for (fresh) authentication data (PIP-30)."""
    body = CommandAuthChallenge(
        server_version=server_version,
        challenge=AuthData(auth_method_name=auth_method_name, auth_data=auth_data),
        protocol_version=protocol_version,
    )
    return framed(body)


def auth_response(
    client_version: str,
    auth_method_name: str,
    auth_data: bytes,
    *,
    protocol_version: int = PROTOCOL_VERSION,
) -> bytes:
    """AUTH_RESPONSE: the client's answer to a challenge."""
    body = CommandAuthResponse(
        client_version=client_version,
        response=AuthData(auth_method_name=auth_method_name, auth_data=auth_data),
        protocol_version=protocol_version,
    )
    return framed(body)

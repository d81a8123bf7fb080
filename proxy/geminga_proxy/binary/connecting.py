"""Connections to brokers in a client's name, up to CONNECTED (spec PX-03, PX-04)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import trio

from geminga_protocol.commands import connection
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.frames import Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandError,
    FeatureFlags,
    ServerError,
)
from geminga_protocol.proxy_header import Endpoint, proxy_header
from geminga_proxy.addresses import Address, BadAddress, parse_target
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_runtime.auth.api import Identity
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.logs import shown
from geminga_runtime.stream import FramedStream

NEARLY_S = 1.0
"""Credentials that expire within this time are not shown to a broker."""


class BrokerUnavailable(Exception):
    """No broker, or not this one, can be reached now. The text is for the log."""

    code = ServerError.ServiceNotReady
    """Error code for the client."""


class BrokerRefused(BrokerUnavailable):
    """The broker refuses the proxy for this client; other brokers would too."""

    def __init__(self, text: str, code: ServerError = ServerError.AuthorizationError) -> None:
        super().__init__(text)
        self.code = code


class Client:
    """The client that connections to brokers are made for, and its latest credentials."""

    def __init__(
        self,
        hello: CommandConnect,
        address: str = "",
        *,
        identity: Identity | None = None,
    ) -> None:
        self.hello = hello
        self.address = address
        self.role = identity.role if identity else None
        self.auth_method = hello.auth_method_name if identity else ""
        self.auth_data = hello.auth_data if identity else b""
        self._expires_at_s = identity.expires_at_s if identity else None
        self._renewed = trio.Event()

    def __repr__(self) -> str:
        return f"<Client {self.address} role={self.role}>"

    def renewed(self, identity: Identity, data: bytes) -> None:
        """The client has shown fresh credentials."""
        self.auth_data = data
        self._expires_at_s = identity.expires_at_s
        self._renewed.set()
        self._renewed = trio.Event()

    async def fresh_data(self) -> bytes:
        """Credentials that have not expired. The proxy asks the client for new ones in time; until
        they come, this waits.
        """
        while self._expires_at_s is not None and self._expires_at_s - time.time() < NEARLY_S:
            await self._renewed.wait()
        return self.auth_data


@dataclass(slots=True)
class BrokerConnection:
    """A connection to a broker after CONNECTED. The owner closes the stream."""

    stream: FramedStream
    connected: Frame
    then: list[Frame]
    """Frames that came with CONNECTED."""
    reader: FrameReader


class Connector:
    """Connects to brokers, and authenticates there."""

    def __init__(self, config: ProxyConfig, brokers: Brokers, version: str) -> None:
        self._config = config
        self._brokers = brokers
        self._version = version

    async def connect_any(
        self, client: Client, nursery: trio.Nursery
    ) -> tuple[Address, BrokerConnection]:
        """A connection to some broker. Raises BrokerUnavailable."""
        failure = "no broker is known"
        for address in self._brokers.rotation.order(self._brokers.listed):
            try:
                return address, await self.connect(address, client, nursery)
            except BrokerRefused:
                raise
            except BrokerUnavailable as error:
                failure = str(error)
        raise BrokerUnavailable(failure)

    async def connect(
        self, address: Address, client: Client, nursery: trio.Nursery
    ) -> BrokerConnection:
        """Connect and shake hands for a client; the stream's writer runs in the nursery.

        Raises BrokerUnavailable, or its subclass BrokerRefused.
        """
        deadline = trio.current_time() + self._config.brokers.connect_timeout_ms / 1000
        try:
            with trio.fail_at(deadline):
                stream = await self._open(address, client)
        except (ConnectFailed, trio.TooSlowError) as error:
            if address in self._brokers.listed:
                self._brokers.rotation.is_dead(address)
            text = str(error) or f"{address}: no connection in time"
            raise BrokerUnavailable(text) from error
        nursery.start_soon(stream.run_writer)
        try:
            with trio.fail_at(deadline):
                return await self._shake_hands(stream, address, client)
        except trio.TooSlowError:
            await stream.aclose()
            raise BrokerUnavailable(f"{address} did not answer CONNECT in time") from None
        except (ConnectionLost, FramingError, OSError) as error:
            await stream.aclose()
            raise BrokerUnavailable(str(error)) from error
        except BaseException:
            await stream.aclose()
            raise

    async def _open(self, address: Address, client: Client) -> FramedStream:
        """Raises ConnectFailed, BrokerRefused."""
        preface = None
        if self._config.client.haproxy_protocol:
            preface = partial(_header, client.address)
        host = address.host
        if not self._brokers.targets.is_known(address):
            host = await self._allowed_ip(address)
        return await connect(
            host, address.port, tls=self._brokers.tls, server_name=address.host, preface=preface
        )

    async def _allowed_ip(self, address: Address) -> str:
        """The IP address of a host that only the configuration allows; it must be allowed too."""
        try:
            found = await trio.socket.getaddrinfo(
                address.host, address.port, type=trio.socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            raise ConnectFailed(f"{address}: {error}") from error
        for *_rest, (ip, *_port) in found:
            if self._brokers.targets.allows_ip(str(ip)):
                return str(ip)
        raise BrokerRefused(f"{address} resolves to no allowed IP address")

    async def _shake_hands(
        self, stream: FramedStream, address: Address, client: Client
    ) -> BrokerConnection:
        stream.write(self._hello(client))
        reader = FrameReader()
        while True:
            data = await stream.receive()
            if not data:
                raise ConnectionLost(f"{address} closed the connection during the handshake")
            frames = reader.feed(data)
            for index, frame in enumerate(frames):
                kind = frame.type
                if kind == BaseCommand.CONNECTED:
                    return BrokerConnection(stream, frame, frames[index + 1 :], reader)
                if kind == BaseCommand.AUTH_CHALLENGE:
                    stream.write(self._own_response(client))
                elif kind == BaseCommand.ERROR:
                    raise self._refusal(address, client, frame.command.error)

    def _refusal(self, address: Address, client: Client, error: CommandError) -> BrokerRefused:
        whose = f" for role {shown(client.role)}" if client.role else ""
        text = f"{address} refused the proxy{whose}: {error.message}"
        has_own = bool(self._brokers.credentials.own.method)
        if error.error == ServerError.AuthenticationError and not has_own:
            text += (
                "; the proxy has no credentials: give it brokerClientAuthenticationPlugin and "
                "brokerClientAuthenticationParameters"
            )
        return BrokerRefused(text, error.error)

    def _hello(self, client: Client) -> bytes:
        """CONNECT with the proxy's own credentials, in the client's name."""
        policy, hello = self._brokers.credentials, client.hello
        own, data = policy.own, policy.own.data()
        flags = FeatureFlags()
        flags.CopyFrom(hello.feature_flags)
        return connection.connect(
            hello.client_version,
            auth_method_name=own.method or None,
            auth_data=data or None,
            protocol_version=hello.protocol_version,
            feature_flags=flags,
            original=policy.original(client.role, client.auth_method, client.auth_data),
            proxy_version=self._version,
        )

    async def answer_refresh(self, client: Client) -> bytes:
        """AUTH_RESPONSE to a broker that asks for fresh credentials after CONNECTED."""
        if not self._brokers.credentials.forwards:
            return self._own_response(client)
        data = await client.fresh_data()
        return self._response(client, client.auth_method, data)

    def _own_response(self, client: Client) -> bytes:
        own = self._brokers.credentials.own
        return self._response(client, own.method, own.data())

    def _response(self, client: Client, method: str, data: bytes) -> bytes:
        return connection.auth_response(
            self._version, method, data, protocol_version=client.hello.protocol_version
        )


def _header(client_name: str, host: str, port: int) -> bytes:
    """The PROXY header that names the client to a broker. Brokers use the source only; if the
    destination is of the other address family, its wildcard address is sent.
    """
    try:
        source = Endpoint(*parse_target(client_name))
        if (":" in source.host) != (":" in host):
            host = "::" if ":" in source.host else "0.0.0.0"
        return proxy_header(source, Endpoint(host, port))
    except (BadAddress, LocalProtocolError):
        return b"PROXY UNKNOWN\r\n"

"""The brokers behind a proxy: where they are, and connections to them (spec PX-03, PX-04)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from geminga_protocol.commands import connection
from geminga_protocol.commands.connection import Original
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.frames import Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnect,
    FeatureFlags,
    ServerError,
)
from geminga_protocol.proxy_header import Endpoint, proxy_header
from geminga_proxy.addresses import (
    Address,
    BadAddress,
    Targets,
    parse_target,
    parse_url,
    parse_urls,
)
from geminga_proxy.config import ProxyConfig
from geminga_proxy.credentials import own_credentials
from geminga_proxy.discovery import BrokerRecord
from geminga_runtime.auth.api import Identity
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.settings import ConfigError
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts

_log = logging.getLogger(__name__)

DEAD_S = 5.0
"""A broker that could not be reached is asked last for so long."""
NEARLY_S = 1.0
"""Credentials that expire within this are not shown to a broker any more."""


class BrokerUnavailable(Exception):
    """No broker, or not this one, can be had now. The text goes to the log."""

    code = ServerError.ServiceNotReady
    """What the client is told."""


class BrokerRefused(BrokerUnavailable):
    """The broker does not let the proxy in for this client; another one would not either."""

    def __init__(self, text: str, code: ServerError = ServerError.AuthorizationError) -> None:
        super().__init__(text)
        self.code = code


class Client:
    """For whom connections to brokers are made, and what it has shown last."""

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
        """It has shown fresh credentials."""
        self.auth_data = data
        self._expires_at_s = identity.expires_at_s
        self._renewed.set()
        self._renewed = trio.Event()

    async def fresh_data(self) -> bytes:
        """Credentials that last: the proxy asks for them when the old ones expire."""
        while self._expires_at_s is not None and self._expires_at_s - time.time() < NEARLY_S:
            await self._renewed.wait()
        return self.auth_data


@dataclass(slots=True)
class BrokerConnection:
    """A broker's connection after the hand-shake. The owner ends its writer by closing it."""

    stream: FramedStream
    connected: Frame
    then: list[Frame]
    """What the broker said right after it."""
    reader: FrameReader


class Brokers:
    """Knows the brokers and how to talk to them."""

    def __init__(self, config: ProxyConfig, version: str) -> None:
        """Raises ConfigError."""
        self._config = config
        self._version = version
        client, where = config.client, config.brokers
        self.credentials = own_credentials(client.auth_plugin, client.auth_parameters)
        self.tls = self._tls_contexts() if client.tls else None
        self.listed = self._listed()
        known = [
            *parse_urls("brokerServiceURL", where.service_url),
            *parse_urls("brokerServiceURLTLS", where.service_url_tls),
        ]
        self.targets = Targets(
            known,
            where.allowed_host_names,
            where.allowed_ip_addresses,
            where.allowed_target_ports,
        )
        self.on_web_found: Callable[[Sequence[Address]], object] | None = None
        """Hears where discovered brokers' web services are."""
        self._next = 0
        self._dead_until_s: dict[Address, float] = {}

    def _listed(self) -> list[Address]:
        where = self._config.brokers
        if self._config.client.tls:
            return parse_urls("brokerServiceURLTLS", where.service_url_tls)
        return parse_urls("brokerServiceURL", where.service_url)

    def _tls_contexts(self) -> TlsContexts:
        client = self._config.client
        own = self.credentials
        options = ClientTls(
            certificate_file=own.certificate_file or client.tls_certificate_file,
            key_file=own.key_file or client.tls_key_file,
            trust_certs_file=client.tls_trust_certs_file,
            validate_hostname=client.tls_hostname_verification,
        )
        try:
            return TlsContexts(options, refresh_check_s=self._config.tls.refresh_check_s)
        except TlsConfigError as error:
            raise ConfigError(f"TLS to brokers: {error}") from error

    def found(self, records: Sequence[BrokerRecord]) -> None:
        """Discovery says that these are the brokers now. None at all changes nothing, as they are
        rather all being restarted.
        """
        if not records:
            return
        self._dead_until_s.clear()
        by_tls = self.tls is not None
        self.listed = _addresses(
            one.pulsar_service_url_tls if by_tls else one.pulsar_service_url for one in records
        )
        self.targets.know(
            _addresses(
                url
                for one in records
                for url in (one.pulsar_service_url, one.pulsar_service_url_tls)
            )
        )
        if self.on_web_found is not None:
            self.on_web_found(
                _addresses(
                    one.web_service_url_tls if by_tls else one.web_service_url for one in records
                )
            )

    def _in_turn(self) -> list[Address]:
        """All brokers, another one first each time, those that were just unreachable last."""
        self._next += 1
        start = self._next % len(self.listed) if self.listed else 0
        now_s = trio.current_time()
        turned = self.listed[start:] + self.listed[:start]
        return sorted(turned, key=lambda one: self._dead_until_s.get(one, 0.0) > now_s)

    async def connect_any(
        self, client: Client, nursery: trio.Nursery
    ) -> tuple[Address, BrokerConnection]:
        """A connection to some broker. Raises BrokerUnavailable."""
        failure = "no broker is known"
        for address in self._in_turn():
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

        Raises BrokerUnavailable, and BrokerRefused, which is one.
        """
        deadline = trio.current_time() + self._config.brokers.connect_timeout_ms / 1000
        try:
            with trio.fail_at(deadline):
                stream = await self._connect(address, client)
        except (ConnectFailed, trio.TooSlowError) as error:
            if address in self.listed:
                self._dead_until_s[address] = trio.current_time() + DEAD_S
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

    async def _connect(self, address: Address, client: Client) -> FramedStream:
        """Raises ConnectFailed, BrokerRefused."""
        preface = None
        if self._config.client.haproxy_protocol:
            preface = partial(_header, client.address)
        host = address.host
        if not self.targets.is_known(address):
            host = await self._allowed_ip(address)
        return await connect(
            host, address.port, tls=self.tls, server_name=address.host, preface=preface
        )

    async def _allowed_ip(self, address: Address) -> str:
        """What a host that only the configuration allows resolves to, if that is allowed too."""
        try:
            found = await trio.socket.getaddrinfo(
                address.host, address.port, type=trio.socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            raise ConnectFailed(f"{address}: {error}") from error
        for *_rest, (ip, *_port) in found:
            if self.targets.allows_ip(str(ip)):
                return str(ip)
        raise BrokerRefused(f"{address} resolves to no address that is allowed")

    async def _shake_hands(
        self, stream: FramedStream, address: Address, client: Client
    ) -> BrokerConnection:
        stream.write(self._hello(client))
        reader = FrameReader()
        while True:
            data = await stream.receive()
            if not data:
                raise ConnectionLost(f"{address} closed in the hand-shake")
            frames = reader.feed(data)
            for index, frame in enumerate(frames):
                kind = frame.type
                if kind == BaseCommand.CONNECTED:
                    return BrokerConnection(stream, frame, frames[index + 1 :], reader)
                if kind == BaseCommand.AUTH_CHALLENGE:
                    stream.write(self.answer_challenge(client.hello.protocol_version))
                elif kind == BaseCommand.ERROR:
                    error = frame.command.error
                    text = f"{address} refused the proxy for {client.role}: {error.message}"
                    raise BrokerRefused(text, error.error)

    @property
    def forwards(self) -> bool:
        """Whether brokers are shown the client's credentials."""
        return self._config.client.forward_credentials

    async def answer_refresh(self, client: Client) -> bytes:
        """AUTH_RESPONSE to a broker that asks for fresh credentials in the middle of things."""
        version = client.hello.protocol_version
        if not self.forwards:
            return self.answer_challenge(version)
        data = await client.fresh_data()
        method = client.auth_method
        return connection.auth_response(self._version, method, data, protocol_version=version)

    def answer_challenge(self, protocol_version: int) -> bytes:
        """AUTH_RESPONSE with the proxy's own credentials."""
        own = self.credentials
        return connection.auth_response(
            self._version, own.method, own.data(), protocol_version=protocol_version
        )

    def _hello(self, client: Client) -> bytes:
        """CONNECT with the proxy's own credentials, in the name of the client."""
        own, hello = self.credentials, client.hello
        data = own.data()
        original = Original(principal=client.role)
        if self.forwards:
            method = client.auth_method
            text = client.auth_data.decode("utf-8", "replace")
            original = Original(client.role, text, method)
        flags = FeatureFlags()
        flags.CopyFrom(hello.feature_flags)
        return connection.connect(
            hello.client_version,
            auth_method_name=own.method or None,
            auth_data=data or None,
            protocol_version=hello.protocol_version,
            feature_flags=flags,
            original=original,
            proxy_version=self._version,
        )


def _addresses(urls: Iterable[str | None]) -> list[Address]:
    """Of all that can be understood."""
    found = []
    for url in urls:
        if url:
            try:
                found.append(parse_url(url))
            except BadAddress as error:
                _log.warning("a broker's address: %s", error)
    return found


def _header(client_name: str, host: str, port: int) -> bytes:
    """The PROXY header that tells a broker of a client. Only the source counts for it, so a
    destination of the other family is told as any address.
    """
    try:
        source = Endpoint(*parse_target(client_name))
        if (":" in source.host) != (":" in host):
            host = "::" if ":" in source.host else "0.0.0.0"
        return proxy_header(source, Endpoint(host, port))
    except (BadAddress, LocalProtocolError):
        return b"PROXY UNKNOWN\r\n"

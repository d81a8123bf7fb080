"""The brokers behind a proxy: where they are, and connections to them (spec PX-03, PX-04)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from geminga_protocol.commands import connection
from geminga_protocol.commands.connection import Original
from geminga_protocol.frames import Frame, FrameReader, FramingError
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandConnect, FeatureFlags
from geminga_proxy.addresses import Address, Targets, parse_urls
from geminga_proxy.config import ProxyConfig
from geminga_proxy.credentials import own_credentials
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.settings import ConfigError
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts

_log = logging.getLogger(__name__)

DEAD_S = 5.0
"""A broker that could not be reached is asked last for so long."""


class BrokerUnavailable(Exception):
    """No broker, or not this one, can be had now. The text goes to the log."""


@dataclass(frozen=True, slots=True)
class Client:
    """For whom a connection to a broker is made."""

    hello: CommandConnect
    role: str | None = None
    auth_method: str = ""
    auth_data: bytes = b""


@dataclass(slots=True)
class Greeted:
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

    def found(self, brokers: Sequence[Address]) -> None:
        """Discovery says that these are the brokers now."""
        if brokers:
            self.listed = list(brokers)
            self.targets.know(brokers)

    def _in_turn(self) -> list[Address]:
        """All brokers, another one first each time, those that were just unreachable last."""
        self._next += 1
        start = self._next % len(self.listed) if self.listed else 0
        now_s = trio.current_time()
        turned = self.listed[start:] + self.listed[:start]
        return sorted(turned, key=lambda one: self._dead_until_s.get(one, 0.0) > now_s)

    async def greet_any(self, client: Client, nursery: trio.Nursery) -> tuple[Address, Greeted]:
        """A connection to some broker. Raises BrokerUnavailable."""
        failure = "no broker is known"
        for address in self._in_turn():
            try:
                return address, await self.greet(address, client, nursery)
            except BrokerUnavailable as error:
                failure = str(error)
                self._dead_until_s[address] = trio.current_time() + DEAD_S
        raise BrokerUnavailable(failure)

    async def greet(self, address: Address, client: Client, nursery: trio.Nursery) -> Greeted:
        """Connect and shake hands for a client; the stream's writer runs in the nursery.

        Raises BrokerUnavailable.
        """
        timeout_s = self._config.brokers.connect_timeout_ms / 1000
        try:
            deadline = trio.current_time() + timeout_s
            stream = await connect(address.host, address.port, deadline=deadline, tls=self.tls)
        except ConnectFailed as error:
            raise BrokerUnavailable(str(error)) from error
        nursery.start_soon(stream.run_writer)
        try:
            with trio.fail_after(timeout_s):
                return await self._shake_hands(stream, address, client)
        except trio.TooSlowError:
            await stream.aclose()
            raise BrokerUnavailable(f"{address} did not answer CONNECT in time") from None
        except (ConnectionLost, FramingError) as error:
            await stream.aclose()
            raise BrokerUnavailable(str(error)) from error
        except BaseException:
            await stream.aclose()
            raise

    async def _shake_hands(self, stream: FramedStream, address: Address, client: Client) -> Greeted:
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
                    return Greeted(stream, frame, frames[index + 1 :], reader)
                if kind == BaseCommand.AUTH_CHALLENGE:
                    stream.write(self.answer_challenge(client.hello.protocol_version))
                elif kind == BaseCommand.ERROR:
                    text = frame.command.error.message
                    raise ConnectionLost(f"{address} refused the proxy: {text}")

    def answer_challenge(self, protocol_version: int) -> bytes:
        """AUTH_RESPONSE with the proxy's own credentials."""
        own = self.credentials
        return connection.auth_response(
            self._version, own.method, own.data(), protocol_version=protocol_version
        )

    def _hello(self, client: Client) -> bytes:
        """CONNECT with the proxy's own credentials, in the name of the client."""
        own, hello = self.credentials, client.hello
        original = Original(principal=client.role)
        if self._config.client.forward_credentials:
            method = client.auth_method
            original = Original(client.role, client.auth_data.decode("latin-1"), method)
        flags = FeatureFlags()
        flags.CopyFrom(hello.feature_flags)
        return connection.connect(
            hello.client_version,
            auth_method_name=own.method or None,
            auth_data=own.data() or None,
            protocol_version=hello.protocol_version,
            feature_flags=flags,
            original=original,
            proxy_version=self._version,
        )

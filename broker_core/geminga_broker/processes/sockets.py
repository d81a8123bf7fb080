"""The listening sockets of several brokers behind one address.

The parent binds them: a port that is taken is found before anything is started, and stays the
service's when a broker dies. All brokers accept from the service's sockets; each has one of its own
of each kind besides, to which lookups send its clients.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import NamedTuple

from geminga_broker.cluster.addresses import Addresses, advertised_host
from geminga_broker.config import BrokerConfig
from geminga_runtime.errors import BindFailed
from geminga_runtime.listening import listen_on
from geminga_runtime.tls_settings import NO_PORT

PORTS = 1 << 16


class PortKind(NamedTuple):
    """A port of the configuration."""

    key: str
    port: int


class Listeners(NamedTuple):
    """A socket of each kind; None for a port that is not configured."""

    broker: socket.socket | None
    broker_tls: socket.socket | None
    web: socket.socket | None
    web_tls: socket.socket | None

    @property
    def ports(self) -> list[int | None]:
        """The ports of all kinds."""
        return [None if each is None else int(each.getsockname()[1]) for each in self]

    def close(self) -> None:
        """Close this process's copies."""
        for each in self:
            if each is not None:
                each.close()

    def __enter__(self) -> Listeners:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kinds(config: BrokerConfig) -> list[PortKind]:
    """The kinds of ports, in the order of `Listeners`."""
    return [
        PortKind("brokerServicePort", config.network.broker_service_port),
        PortKind("brokerServicePortTls", config.tls.broker_service_port),
        PortKind("webServicePort", config.network.web_service_port),
        PortKind("webServicePortTls", config.tls.web_service_port),
    ]


OWN = "--first-own-port"


def bind_service(config: BrokerConfig) -> Listeners:
    """The sockets of the service's address. Raises BindFailed."""
    return _bind(config, [each.port for each in kinds(config)], named=True)


def bind_own(config: BrokerConfig, ports: list[int | None]) -> Listeners:
    """One broker's own sockets at these ports; 0 takes a free one. Raises BindFailed."""
    return _bind(config, [NO_PORT if port is None else port for port in ports], named=False)


def bind_own_again(config: BrokerConfig, ports: list[int | None], *, fixed: bool) -> Listeners:
    """The sockets of a broker that is started again: the same ports, so that it is the same broker
    to others. If they are taken meanwhile and needn't be these, free ones. Raises BindFailed.
    """
    try:
        return bind_own(config, ports)
    except BindFailed:
        if fixed:
            raise
        return bind_own(config, [None if port is None else 0 for port in ports])


def own_ports(config: BrokerConfig, first: int, brokers: int) -> list[list[int | None]]:
    """The ports of each of so many brokers: one after the other from `first` on, all 0 if that is
    0. Raises BindFailed if there are no such ports.
    """
    wanted = [each.port != NO_PORT for each in kinds(config)]
    if not first:
        return [[0 if is_wanted else None for is_wanted in wanted] for _ in range(brokers)]
    count = brokers * sum(wanted)
    if first + count > PORTS:
        raise BindFailed(
            f"{OWN}: {brokers} brokers need {count} ports, and from {first} on there are "
            f"{PORTS - first}: the first one may be {PORTS - count} at most"
        )
    following = iter(range(first, PORTS))
    return [
        [next(following) if is_wanted else None for is_wanted in wanted] for _ in range(brokers)
    ]


def _bind(config: BrokerConfig, ports: list[int], *, named: bool) -> Listeners:
    with ExitStack() as stack:
        bound = [
            None
            if port == NO_PORT
            else stack.enter_context(
                listen_on(config.network.bind_address, port, kind.key if named else OWN)
            )
            for kind, port in zip(kinds(config), ports, strict=True)
        ]
        stack.pop_all()
        return Listeners(*bound)


def addresses(config: BrokerConfig, listeners: Listeners) -> Addresses:
    """What clients are told of these sockets."""
    host = advertised_host(config.network.bind_address, config.network.advertised_address)
    broker, broker_tls, web, web_tls = (
        "" if port is None else f"{scheme}://{host}:{port}"
        for scheme, port in zip(
            ("pulsar", "pulsar+ssl", "http", "https"), listeners.ports, strict=True
        )
    )
    return Addresses(broker, web, broker_tls, web_tls)

"""The ports of several brokers."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from geminga_broker.config import BrokerConfig, NetworkConfig, TlsConfig
from geminga_broker.processes.messages import Begin, Descriptors, message, to_broker
from geminga_broker.processes.sockets import (
    addresses,
    bind_own,
    bind_own_again,
    bind_service,
    own_ports,
)
from geminga_runtime.errors import BindFailed
from geminga_runtime.observing.log_setup import LogSettings

CONFIG = BrokerConfig(
    network=NetworkConfig(bind_address="127.0.0.1", broker_service_port=0, web_service_port=0)
)


def test_own_ports() -> None:
    assert own_ports(CONFIG, 0, 2) == [[0, None, 0, None]] * 2
    plain = [7000, None, 7001, None], [7002, None, 7003, None], [7004, None, 7005, None]
    assert own_ports(CONFIG, 7000, 3) == list(plain)
    secured = replace(CONFIG, tls=TlsConfig(broker_service_port=6651, web_service_port=8443))
    assert own_ports(secured, 7000, 2)[1] == [7004, 7005, 7006, 7007]
    tls_only = replace(secured, network=replace(CONFIG.network, broker_service_port=-1))
    assert own_ports(tls_only, 7000, 2)[1] == [None, 7003, 7004, 7005]


def test_ports_end() -> None:
    assert own_ports(CONFIG, 65530, 3)[2] == [65534, None, 65535, None]
    with pytest.raises(BindFailed) as caught:
        own_ports(CONFIG, 65531, 3)
    assert str(caught.value) == (
        "--first-own-port: 3 brokers need 6 ports, and from 65531 on there are 5: the first one "
        "may be 65530 at most"
    )


def test_addresses() -> None:
    with bind_service(CONFIG) as listeners:
        found = addresses(CONFIG, listeners)
        ports = listeners.ports
        assert found.broker_url == f"pulsar://127.0.0.1:{ports[0]}"
        assert found.web_url == f"http://127.0.0.1:{ports[2]}"
        assert found.broker_url_tls == found.web_url_tls == ""
        everywhere = replace(CONFIG, network=replace(CONFIG.network, advertised_address="a.b"))
        assert addresses(everywhere, listeners).web_url == f"http://a.b:{ports[2]}"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = replace(CONFIG, network=replace(CONFIG.network, web_service_port=port))
        with pytest.raises(BindFailed, match=f"webServicePort: can't listen on 127.0.0.1:{port}"):
            bind_service(config)


def test_the_ports_of_a_broker_that_is_started_again() -> None:
    with bind_own(CONFIG, [0, None, 0, None]) as first:
        ports = first.ports
    with bind_own_again(CONFIG, ports, fixed=False) as again:
        assert again.ports == ports
        with bind_own_again(CONFIG, ports, fixed=False) as others:
            assert not set(others.ports) & set(ports) - {None}
        with pytest.raises(BindFailed):
            bind_own_again(CONFIG, ports, fixed=True)


def test_a_configuration_crosses_whole() -> None:
    config = replace(
        CONFIG, log=replace(CONFIG.log, password="hidden in print"), network=CONFIG.network
    )
    begin = Begin(
        "broker-1",
        LogSettings("INFO", as_json=True),
        config,
        Descriptors(5, 6, [7, 8], [], [9], []),
    )
    ((_, said, _),) = to_broker().feed(message(begin))
    assert said == begin
    assert isinstance(said, Begin)
    assert said.config.log.password == "hidden in print"


def test_a_broker_s_own_port_in_use_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindFailed, match=f"^--first-own-port: can't listen on .*:{port}: "):
            bind_own(CONFIG, [port, None, 0, None])

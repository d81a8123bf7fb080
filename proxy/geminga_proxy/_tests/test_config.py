"""What the proxy's configuration refuses, and what its command line means."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geminga_proxy.addresses import Address, BadAddress, parse_url, parse_urls
from geminga_proxy.cli import proxy
from geminga_proxy.config import ProxyConfig, load_config
from geminga_runtime.settings import ConfigError

PLAIN = {"brokerServiceURL": "pulsar://h:6650"}


@pytest.mark.parametrize(
    ("key", "url", "told"),
    [
        (
            "brokerServiceURL",
            "pulsar+ssl://h:6651",
            "pulsar+ssl:// belongs in brokerServiceURLTLS, with tlsEnabledWithBroker=true",
        ),
        ("brokerServiceURL", "http://h:8080", "http:// belongs in brokerWebServiceURL"),
        ("brokerServiceURL", "h:6650", "must begin with pulsar://"),
        ("brokerServiceURL", "zk://h:6650", "must begin with pulsar://"),
        ("brokerServiceURL", "pulsar://", "'pulsar://' has no host"),
        ("brokerServiceURL", "pulsar://a:1,pulsar+ssl://b:2", "'pulsar[+]ssl://b:2' must begin"),
        ("brokerServiceURLTLS", "pulsar://h:6650", "pulsar:// belongs in brokerServiceURL"),
        ("brokerWebServiceURL", "https://h:8443", "https:// belongs in brokerWebServiceURLTLS"),
        ("brokerWebServiceURL", "pulsar://h:8080", "must begin with http://"),
        ("brokerWebServiceURL", "h:8080", "must begin with http://"),
        ("brokerWebServiceURLTLS", "http://h:8080", "must begin with https://"),
    ],
)
@pytest.mark.parametrize("by_tls", ["false", "true"])
def test_a_url_of_another_scheme_is_refused(key: str, url: str, told: str, by_tls: str) -> None:
    """Else a URL that asks for TLS is spoken to without."""
    settings = PLAIN | {"brokerServiceURLTLS": "pulsar+ssl://h:6651", key: url}
    with pytest.raises(ConfigError, match=told.replace("pulsar+ssl", "pulsar[+]ssl")):
        load_config(None, {}, settings | {"tlsEnabledWithBroker": by_tls})


def test_what_a_key_takes() -> None:
    one, two = Address("a", 1), Address("b", 2)
    assert parse_urls("brokerServiceURL", "pulsar://a:1") == [one]
    assert parse_urls("brokerServiceURL", "PULSAR://a:1/") == [one]
    assert parse_urls("brokerServiceURL", "pulsar://a:1, b:2") == [one, two]
    assert parse_urls("brokerServiceURLTLS", "pulsar+ssl://a:1,pulsar+ssl://b:2") == [one, two]
    assert parse_urls("brokerServiceURLTLS", "pulsar+ssl://a") == [Address("a", 6651)]
    assert parse_urls("brokerWebServiceURLTLS", "https://a,b:2") == [Address("a", 443), two]
    assert parse_urls("brokerWebServiceURL", "http://a:1/") == [one]
    assert parse_urls("brokerWebServiceURL", "") == []


def test_a_broker_that_asks_for_tls_is_not_spoken_to_without() -> None:
    assert parse_url("pulsar+ssl://h:6651") == Address("h", 6651)
    assert parse_url("pulsar://h:6650", by_tls=False) == Address("h", 6650)
    with pytest.raises(BadAddress, match="tlsEnabledWithBroker=true"):
        parse_url("pulsar+ssl://h:6651", by_tls=False)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Result, list[ProxyConfig]]:
    """The command's result, and the configuration that it would serve with."""
    served: list[ProxyConfig] = []
    monkeypatch.setattr("geminga_runtime.observing.log_setup.set_up_logging", lambda settings: None)
    monkeypatch.setattr("geminga_proxy.cli.run", served.append)
    return CliRunner().invoke(proxy, arguments), served


def test_the_command_refuses_it_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    result, served = run(monkeypatch, "--broker-service-url", "pulsar+ssl://h:6651")
    assert (result.exit_code, served) == (2, [])
    assert result.output == (
        "Error: brokerServiceURL: 'pulsar+ssl://h:6651' must begin with pulsar://; "
        "pulsar+ssl:// belongs in brokerServiceURLTLS, with tlsEnabledWithBroker=true\n"
    )


def test_an_option_with_a_url_for_tls_implies_tls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    by_tls = ("--broker-service-url-tls", "pulsar+ssl://h:6651")
    plain = ("--broker-service-url", "pulsar://h:6650")
    web = ("--broker-web-service-url-tls", "https://h:8443")
    file = tmp_path / "proxy.conf"
    file.write_text("tlsEnabledWithBroker=false\nbrokerServiceURLTLS=pulsar+ssl://h:6651\n")
    configured = ("--config", str(file))
    for options in (by_tls, by_tls + web, plain + by_tls, configured + by_tls, configured + web):
        _, (config,) = run(monkeypatch, *options)
        assert config.client.tls
    for options in (plain, configured + plain):
        _, (config,) = run(monkeypatch, *options)
        assert not config.client.tls
    result, _ = run(monkeypatch, *plain, *web)
    assert result.exit_code == 2
    assert "tlsEnabledWithBroker needs brokerServiceURLTLS" in result.output


def test_each_listener_needs_a_port_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"^servicePort and webServicePort are both 6650: each"):
        load_config(None, {}, {"brokerServiceURL": "pulsar://b:6650", "webServicePort": "6650"})


def test_a_url_for_tls_alone_needs_tls() -> None:
    """Else no broker is known, and every lookup fails."""
    alone = {"brokerServiceURLTLS": "pulsar+ssl://h:6651"}
    with pytest.raises(ConfigError, match="for tlsEnabledWithBroker=true: set that, or"):
        load_config(None, {}, alone)
    assert load_config(None, {}, alone | PLAIN).brokers.service_url
    assert load_config(None, {}, alone | {"tlsEnabledWithBroker": "true"}).client.tls
    assert load_config(None, {}, alone | {"metadataStoreUrl": "sqlite:///m"}).brokers


def test_the_stores_older_names(caplog: pytest.LogCaptureFixture) -> None:
    older = {"zookeeperServers": "a:2181,b:2181/root", "zookeeperSessionTimeoutMs": "7000"}
    brokers = load_config(None, {}, older).brokers
    assert (brokers.metadata_store_url, brokers.session_timeout_ms) == (
        older["zookeeperServers"],
        7000,
    )
    both = load_config(None, {}, older | {"metadataStoreUrl": "zk:c:2181"}).brokers
    assert both.metadata_store_url == "zk:c:2181"
    assert not caplog.records

"""How the proxy finds brokers and shows itself to them, and whose address they see (spec PX-03,
PX-05, PR-14).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.secured import BOTH, Keys, Secured, admin, start_broker, start_proxy

TLS_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
SOURCE = "192.0.2.7"


class Balancer:
    """Prepends a PROXY header to whatever is connected through it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, (_host, port) = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            server.sendall(b"PROXY TCP4 %s 127.0.0.1 %d 6650\r\n" % (SOURCE.encode(), port))
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=ends, daemon=True).start()

    def close(self) -> None:
        """End it and all that goes through it."""
        self._listener.close()
        for stream in self._open:
            stream.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture(scope="module", params=BOTH)
def behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Balancer, proxy and broker pass the client's address on; the broker knows the proxy by its
    certificate.
    """
    folder = tmp_path_factory.mktemp(f"behind-{request.param}")
    keys = Keys(folder / "keys")
    told = {"haProxyProtocolEnabled": "true"}
    broker = start_broker(request.param, folder / "broker", keys, told)
    leaf = keys.certificates["proxy"]
    settings = {
        **keys.proxy_settings(broker),
        **told,
        "haProxyProtocolToBrokerEnabled": "true",
        "brokerClientAuthenticationPlugin": TLS_PLUGIN,
        "brokerClientAuthenticationParameters": (
            f"tlsCertFile:{leaf.certificate},tlsKeyFile:{leaf.key}"
        ),
    }
    try:
        proxy = start_proxy(folder / "proxy", settings)
    except BaseException:
        broker.kill()
        raise
    yield Secured(request.param, keys, broker, proxy, folder)
    proxy.kill()
    broker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_the_clients_address_reaches_the_broker(behind: Secured, secure: bool) -> None:
    proxy = behind.proxy
    url = proxy.service_url_tls if secure else proxy.service_url
    scheme, _, port = url.rpartition(":")
    balancer = Balancer(("127.0.0.1", int(port)))
    client = behind.python_client(f"{scheme}:{balancer.port}", "tls" if secure else "token")
    try:
        topic = behind.topic("address")
        consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
        producer.send(b"x")
        assert consumer.receive(60_000).data() == b"x"
        path = topic.replace("persistent://", "/admin/v2/persistent/") + "/stats"
        stats = admin(behind.broker.web_url, behind.keys, "GET", path)
        assert SOURCE in stats["publishers"][0]["address"]
        assert SOURCE in stats["subscriptions"]["s"]["consumers"][0]["address"]
    finally:
        client.close()
        balancer.close()


def produce(url: str, topic: str, number: int) -> None:
    client = pulsar.Client(
        url,
        operation_timeout_seconds=60,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        client.create_producer(topic).send(b"%d" % number)
    finally:
        client.close()


@pytest.mark.slow
def test_brokers_are_found_in_the_metadata_store(tmp_path: Path) -> None:
    """The proxy is there before the broker, and finds it again on another port."""
    store = tmp_path / "data" / "metadata.sqlite"
    proxy = start_proxy(tmp_path / "proxy", {"metadataStoreUrl": f"sqlite://{store}"})
    broker: ServerProcess | None = None
    topic = "persistent://public/default/found"
    try:
        for number in range(2):
            broker = start_geminga(tmp_path / "data")
            time.sleep(1.5)
            produce(proxy.service_url, topic, number)
            if number:
                broker.stop()
            else:
                broker.kill()
        text = proxy.log_path.read_text()
        assert "1 brokers in" in text
        assert "Traceback" not in text
    finally:
        proxy.kill()
        if broker is not None:
            broker.kill()

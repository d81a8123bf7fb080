"""Brokers and proxies that stop while official clients send and receive through them: nothing is
lost (spec PX-02, PX-07).
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pulsar
import pytest

from compat_tests.faults.test_proxy import address, ask, exchange, until
from compat_tests.processes import ServerProcess, free_port, start_geminga
from compat_tests.secured import start_proxy
from geminga_protocol.commands import connection, consuming
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe


class Traffic:
    """An official client that sends numbers, and one that receives them, both through proxies."""

    def __init__(self, url: str, topic: str) -> None:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        options: dict[str, Any] = {"operation_timeout_seconds": 30, "logger": quiet}
        self.sender, self.receiver = pulsar.Client(url, **options), pulsar.Client(url, **options)
        self.consumer = self.receiver.subscribe(topic, "s")
        self.producer = self.sender.create_producer(
            topic, send_timeout_millis=60_000, block_if_queue_full=True
        )
        self.receipts = 0
        self.failures: list[Any] = []
        self.sent = 0
        self.got: set[int] = set()
        self._stop, self._all_sent = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _told(self, result: Any, _id: Any) -> None:
        if result == pulsar.Result.Ok:
            self.receipts += 1
        else:
            self.failures.append(result)

    def _send(self) -> None:
        while not self._stop.is_set():
            self.producer.send_async(b"%d" % self.sent, self._told)
            self.sent += 1
            time.sleep(0.002)
        self.producer.flush()
        # Only now is it known how many are to come.
        self._all_sent.set()

    def _receive(self) -> None:
        while not self._all_sent.is_set() or len(self.got) < self.sent:
            try:
                message = self.consumer.receive(2000)
            except pulsar.Timeout:
                if self._stop.is_set() and time.monotonic() > self.give_up_s:
                    self.failures.append(f"only {len(self.got)} messages of {self.sent} came")
                    return
                continue
            self.got.add(int(message.data()))
            self.consumer.acknowledge(message)

    give_up_s = 0.0

    def finish(self) -> None:
        """All that was sent has a receipt and came."""
        self.give_up_s = time.monotonic() + 60
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
        self.sender.close()
        self.receiver.close()
        assert not self.failures
        assert self.receipts == self.sent > 0
        assert self.got == set(range(self.sent))


def plain_proxy(folder: Path, broker: ServerProcess, **settings: str) -> ServerProcess:
    return start_proxy(
        folder,
        {
            "brokerServiceURL": broker.service_url,
            "brokerWebServiceURL": broker.web_url,
            **settings,
        },
        log_level="INFO",
    )


@pytest.mark.slow
def test_a_broker_is_killed_behind_the_proxy(tmp_path: Path) -> None:
    ports = free_port(), free_port()

    def start() -> ServerProcess:
        return start_geminga(tmp_path / "data", broker_port=ports[0], web_port=ports[1])

    broker = start()
    proxy = plain_proxy(tmp_path / "proxy", broker)
    traffic = Traffic(proxy.service_url, "persistent://public/default/killed")
    try:
        for _ in range(2):
            time.sleep(1)
            broker.kill()
            broker = start()
            heard = len(traffic.got)
            until(lambda heard=heard: len(traffic.got) > heard, 100)
        traffic.finish()
        assert "Traceback" not in proxy.log_path.read_text()
    finally:
        traffic._stop.set()
        proxy.kill()
        broker.kill()


@pytest.mark.slow
def test_a_proxy_is_drained(tmp_path: Path) -> None:
    """Its clients go on through the other one; nothing is lost, and it ends in time."""
    broker = start_geminga(tmp_path / "data")
    proxies = [
        plain_proxy(tmp_path / name, broker, proxyDrainSeconds="1", servicePort=str(free_port()))
        for name in ("one", "two")
    ]
    hosts = ",".join(proxy.service_url.removeprefix("pulsar://") for proxy in proxies)
    traffic = Traffic(f"pulsar://{hosts}", "persistent://public/default/drained")
    try:
        for number, proxy in enumerate(proxies):
            until(lambda: len(traffic.got) > 100)
            proxy.process.send_signal(signal.SIGTERM)
            # Its clients would stay for ever.
            assert proxy.process.wait(60) == 0, proxy.log_tail()
            assert "Traceback" not in proxy.log_path.read_text()
            settings = {"servicePort": proxy.service_url.rpartition(":")[2]}
            proxies[number] = plain_proxy(proxy.data_dir, broker, **settings)
            heard = len(traffic.got)
            until(lambda heard=heard: len(traffic.got) > heard + 50, 100)
        traffic.finish()
    finally:
        traffic._stop.set()
        for proxy in (*proxies, broker):
            proxy.kill()


@pytest.mark.alone
@pytest.mark.slow
def test_a_slow_consumer_keeps_memory_flat(tmp_path: Path) -> None:
    broker = start_geminga(tmp_path / "data")
    proxy = plain_proxy(tmp_path / "proxy", broker)
    client = pulsar.Client(proxy.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        topic = "persistent://public/default/slow"
        client.subscribe(topic, "s").close()
        producer = client.create_producer(topic, block_if_queue_full=True)
        for _ in range(2000):
            producer.send_async(bytes(100_000), lambda *_: None)
        producer.flush()
        # A consumer with permits for all of it, that reads nothing: its socket stays full.
        before = proxy.rss_bytes()
        target = "127.0.0.1:" + broker.service_url.rpartition(":")[2]
        with socket.create_connection(address(proxy.service_url)) as stream:
            ask(stream, connection.connect("c", proxy_to_broker_url=target))
            ask(stream, consuming.subscribe(topic, "s", CommandSubscribe.Exclusive, 1, 2))
            stream.sendall(consuming.flow(1, 5000))
            time.sleep(3)
            assert proxy.rss_bytes() - before < 10_000_000
            # Others are served meanwhile.
            exchange(client, "persistent://public/default/beside")
    finally:
        client.close()
        proxy.kill()
        broker.kill()

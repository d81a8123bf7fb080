"""A forked child keeps none of its parent's connections open, and breaks none."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import trio

import geminga
import geminga.blocking
from geminga.testing import BrokerUrl, broker

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
TOPIC = "persistent://public/default/forked"


@pytest.fixture(scope="module")
def url() -> Iterator[BrokerUrl]:
    """A broker in a thread."""
    with broker() as found:
        yield found


class Relay:
    """Relays between a client and the broker, and notes the client's end of each connection."""

    def __init__(self, url: BrokerUrl) -> None:
        self._broker = urlsplit(str(url)).hostname, urlsplit(str(url)).port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listening.getsockname()[1]}"
        self.accepted = 0
        self.ended = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            server = socket.create_connection(self._broker)
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_clients: bool) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        if is_clients:
            self.ended.release()

    def close(self) -> None:
        """Accept no more connections."""
        self._listening.close()


@pytest.fixture
def relay(url: BrokerUrl) -> Iterator[Relay]:
    made = Relay(url)
    yield made
    made.close()


@contextmanager
def idle_child() -> Iterator[None]:
    """A forked child that stays alive and does nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


def all_ended(relay: Relay) -> bool:
    return all(relay.ended.acquire(timeout=60) for _ in range(relay.accepted))


def test_of_a_program_without_a_loop(relay: Relay) -> None:
    client = geminga.blocking.connect(relay.url)
    client.create_producer(TOPIC).send(b"a")
    assert relay.accepted
    with idle_child():
        # The parent's connections go on.
        accepted = relay.accepted
        client.create_producer(f"{TOPIC}-2").send(b"b")
        assert relay.accepted == accepted
        client.close()
        assert all_ended(relay)


async def test_of_a_trio_program(relay: Relay) -> None:
    async with geminga.connect(relay.url) as client:
        await (await client.create_producer(TOPIC)).send(b"a")
        with idle_child():
            accepted = relay.accepted
            await (await client.create_producer(f"{TOPIC}-2")).send(b"b")
            assert relay.accepted == accepted
            await client.aclose()
            assert await trio.to_thread.run_sync(all_ended, relay)


def test_a_child_of_a_child(relay: Relay) -> None:
    client = geminga.blocking.connect(relay.url)
    client.create_producer(TOPIC).send(b"a")
    pid = os.fork()
    if pid == 0:
        with idle_child():
            pass
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    client.close()
    assert all_ended(relay)

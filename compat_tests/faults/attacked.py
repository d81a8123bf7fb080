"""A server that is attacked, and what the tests of it share."""

from __future__ import annotations

import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import geminga
import geminga.blocking
from compat_tests.processes import ServerProcess
from compat_tests.secured import Keys, start_broker
from compat_tests.wire.raw import ConnectionEnded, RawClient
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, CommandError

TOPIC = "persistent://public/default/attacked"
NO_REQUEST = (1 << 64) - 1


class Attacked(NamedTuple):
    """The server, its keys, and somebody who is served all the time."""

    server: ServerProcess
    keys: Keys
    bystander: Bystander

    def lines(self) -> list[str]:
        """Its log."""
        return self.server.log_path.read_text(errors="replace").splitlines()


class Bystander:
    """Somebody with a producer and a consumer."""

    def __init__(self, server: ServerProcess, keys: Keys) -> None:
        who = geminga.AuthenticationToken(keys.token("alice"))
        self._open = contextlib.ExitStack()
        client = self._open.enter_context(
            geminga.blocking.connect(server.service_url, authentication=who)
        )
        self.consumer = client.subscribe(TOPIC, "bystander")
        self.producer = client.create_producer(TOPIC)

    def close(self) -> None:
        """Leave."""
        self._open.close()

    def is_served(self) -> None:
        """Raises unless a message comes through on the connection of old."""
        self.producer.send(b"still here")
        self.consumer.acknowledge(self.consumer.receive(60))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    keys = Keys(folder / "keys")
    server = start_broker("geminga", folder / "broker", keys)
    try:
        bystander = Bystander(server, keys)
    except BaseException:
        server.kill()
        raise
    yield Attacked(server, keys, bystander)
    bystander.is_served()
    bystander.close()
    assert server.stop() == 0
    log = server.log_path.read_text(errors="replace")
    for secret in keys.secrets():
        assert secret not in log
        signature = secret.rpartition(".")[2]
        assert len(signature) < 20 or signature not in log
    assert "Traceback" not in log


def refuse(server: ServerProcess, greeting: bytes) -> tuple[CommandError, str]:
    """The server's answer to a CONNECT that must fail, and what it logs of that connection."""
    since = log_size(server)
    with RawClient(server.address, handshake=False) as client:
        port = client.socket.getsockname()[1]
        client.socket.sendall(greeting)
        answer = client.wait_for(BaseCommand.ERROR).command.error
        with pytest.raises(ConnectionEnded):
            client.wait_for(BaseCommand.CONNECTED)
    assert answer.request_id == NO_REQUEST
    return answer, logged(server, port, since)


def refuse_unread(server: ServerProcess, greeting: bytes, reason: str) -> None:
    """A CONNECT above a bound is not looked at: no answer, the connection ends, and one line of the
    log holds the reason.
    """
    since = log_size(server)
    with RawClient(server.address, handshake=False) as client:
        port = client.socket.getsockname()[1]
        with contextlib.suppress(ConnectionError):  # it may end while we send
            client.socket.sendall(greeting)
        with pytest.raises(ConnectionEnded):
            client.next_frame()
    assert reason in logged(server, port, since)


def log_size(server: ServerProcess) -> int:
    """Bytes of its log so far."""
    return server.log_path.stat().st_size


def logged(server: ServerProcess, port: int, since: int) -> str:
    """The one warning about the connection from a port of ours, after so many bytes of the log:
    ports are given again, and before may stand one about somebody else.
    """
    deadline = time.monotonic() + 60
    while True:
        log = server.log_path.read_bytes()[since:].decode(errors="replace")
        found = [
            line
            for line in log.splitlines()
            if f":{port} " in line and (" WARNING " in line or " ERROR " in line)
        ]
        if found or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert len(found) == 1, found
    assert len(found[0]) < 1000
    return found[0]


def rest(server: ServerProcess, path: str, **headers: str) -> int:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.web_url + path, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code

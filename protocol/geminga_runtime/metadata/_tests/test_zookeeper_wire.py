"""kazoo's connection as it is overridden: many requests in a write, many answers in a read."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import CLOSE_RESPONSE
from kazoo.protocol.serialization import Exists, reply_header_struct

from geminga_runtime.metadata import zookeeper_wire
from geminga_runtime.metadata.zookeeper_session import ZooKeeperSession
from geminga_runtime.metadata.zookeeper_wire import Connection, NotSent, Request, Waker

NO_NODE = -101
PATIENCE_S = 5.0
COUNT = 300
ALL_AT_ONCE = 1 << 20


class Wire:
    """A connection whose server is the test, which also does what kazoo's thread would do."""

    def __init__(self) -> None:
        session = ZooKeeperSession(
            "127.0.0.1:1", 10.0, connected=_nothing, changed=_no_change, overflowed=_nothing
        )
        self.link = session._link
        self.link.connection = 1
        self.connection: Connection = self.link._client._connection
        connection = self.connection
        connection._socket, self.server = socket.socketpair()
        connection._socket.setblocking(False)
        self.server.settimeout(PATIENCE_S)
        self.reading, self.waker = connection.handler.create_socket_pair()
        connection._read_sock, connection._write_sock = self.reading, self.waker
        connection._is_open = True
        self.answers: list[tuple[int, object]] = []

    def queue(self, number: int, connection: int = 1) -> Request:
        """A request of the loop's."""

        def finish(_value: object, error: Exception | None) -> None:
            self.answers.append((number, None if error is None else type(error)))

        request = Request(self.link, connection, finish)
        self.link._client._queue.append((Exists(f"/{number}", None), request))
        self.waker.send(b"\0")
        return request

    def send(self) -> int:
        """What kazoo's thread does when it is woken up; returns how many packets came."""
        self.connection._send_request(PATIENCE_S, PATIENCE_S)
        data = self.server.recv(ALL_AT_ONCE)
        packets = 0
        while data:
            length = int.from_bytes(data[:4], "big")
            assert len(data) >= 4 + length
            data = data[4 + length :]
            packets += 1
        return packets

    def read(self) -> int | None:
        """What kazoo's thread does when something came."""
        response = self.connection._read_socket(PATIENCE_S)
        self.link._drain()
        return response

    @property
    def is_woken(self) -> bool:
        """Whether there is a byte for kazoo's thread."""
        return bool(self.connection.handler.select([self.reading], [], [], 0.0)[0])

    def close(self) -> None:
        for each in (self.connection._socket, self.server, self.reading, self.waker):
            each.close()


def _nothing() -> None:
    """No test here gets there."""


def _no_change(_kind: int, _path: str) -> None:
    """No test here gets there."""


def answer(xid: int) -> bytes:
    """A server's: there is no such node."""
    packet: bytes = reply_header_struct.pack(xid, 0, NO_NODE)
    return len(packet).to_bytes(4, "big") + packet


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    made = Wire()
    yield made
    made.close()


async def test_what_is_queued_goes_in_one_write_and_answers_are_read_at_once(wire: Wire) -> None:
    for number in range(COUNT):
        wire.queue(number)
    assert wire.send() == COUNT
    assert not wire.is_woken
    whole = b"".join(answer(number + 1) for number in range(COUNT))
    wire.server.sendall(whole[:-7])
    # One look; the last answer is read as soon as the rest is there.
    assert wire.read() is None
    assert wire.answers == [(number, None) for number in range(COUNT - 1)]
    wire.server.sendall(whole[-7:])
    wire.read()
    assert wire.answers[-1] == (COUNT - 1, None)
    assert len(wire.answers) == COUNT


async def test_an_answer_in_pieces_is_waited_for(wire: Wire) -> None:
    wire.queue(0)
    wire.send()
    wire.server.sendall(answer(1)[:2])
    with pytest.raises(wire.connection.handler.timeout_exception):
        wire.connection._read_socket(0.01)
    wire.server.sendall(answer(1)[2:])
    wire.read()
    assert wire.answers == [(0, None)]


async def test_a_write_is_bounded_and_the_rest_is_not_forgotten(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_wire, "SENT_AT_ONCE_BYTES", 1)
    for number in range(3):
        wire.queue(number)
    for is_more in (True, True, False):
        assert wire.send() == 1
        assert wire.is_woken is is_more


async def test_requests_of_an_earlier_connection_are_not_sent(wire: Wire) -> None:
    old = wire.queue(0, connection=0)
    new = wire.queue(1)
    assert wire.send() == 1
    wire.link._drain()
    assert wire.answers == [(0, NotSent)]
    assert (old.is_sent, new.is_sent) == (False, True)


async def test_the_outcome_of_what_a_failed_write_had_is_unknown(wire: Wire) -> None:
    requests = [wire.queue(number) for number in range(2)]
    wire.server.close()
    with pytest.raises(ConnectionDropped):
        wire.connection._send_request(PATIENCE_S, PATIENCE_S)
    assert all(request.is_sent for request in requests)
    assert len(wire.link._client._pending) == 2  # kazoo fails them with the connection


async def test_the_end_of_the_connection_is_seen(wire: Wire) -> None:
    wire.queue(0)
    wire.send()
    wire.server.sendall(answer(1)[:2])
    wire.server.close()
    with pytest.raises(ConnectionDropped):
        wire.read()


async def test_the_thread_is_woken_once_until_it_is_awake() -> None:
    waker_end, reading = socket.socketpair()
    with Waker(fileno=waker_end.detach()) as waker, reading:
        assert waker.send(b"\0") == 1
        assert waker.send(b"\0") == 0
        waker.woken(reading)
        assert waker.send(b"\0") == 1
        assert reading.recv(9) == b"\0"


def test_the_answer_to_a_close_is_kazoos() -> None:
    """`_read_socket` compares with it."""
    assert CLOSE_RESPONSE == -11

"""A failed message affects later ones only as in the Trio producer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import geminga.blocking as gb
from geminga._producing.partitions import Partitions
from geminga._producing.receipt import Receipt
from geminga.testing import BrokerUrl


def test_a_failure_that_passes_leaves_nothing(
    url: BrokerUrl, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Partitions.send_checked
    failures = [gb.ConnectionFailedError("for now", topic=topic)]

    def fail(self: Partitions, *arguments: object) -> Receipt:
        if failures:
            raise failures.pop()
        return send(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Partitions, "send_checked", fail)
    with gb.connect(url) as client, client.create_producer(topic) as sending:
        with pytest.raises(gb.ConnectionFailedError, match="for now"):
            sending.send(b"a", properties={"k": "v"})
        assert sending.send(b"b")
        assert sending.submit(b"c").wait()


def test_a_router_that_raises(
    url: BrokerUrl, topic: str, partitioned: Callable[[str, int], str]
) -> None:
    """Its error is raised at the call, and the message frees its room."""
    with gb.connect(url) as client:
        sending = client.create_producer(
            partitioned(topic, 2), message_router=lambda m, n: 1 // 0, max_pending_messages=1
        )
        for _ in range(4):
            with pytest.raises(gb.InvalidArgumentError, match="ZeroDivisionError"):
                sending.send(b"x")
        assert sending.pending_messages == 0


def leave(*_: Any) -> Any:
    sys.exit(3)


class Leaving(gb.ProducerInterceptor, gb.ConsumerInterceptor):
    """Exits wherever it is called."""

    before_send = on_send_acknowledgement = before_consume = on_acknowledge = leave


def test_functions_of_the_program_that_exit_end_no_client(
    url: BrokerUrl, topic: str, partitioned: Callable[[str, int], str]
) -> None:
    """They run in the client's thread, which is not theirs to end."""
    leaving = Leaving()
    calls: list[bytes] = []

    def listen(consumer: gb.Consumer[bytes], message: gb.Message[bytes]) -> None:
        calls.append(message.data)
        if len(calls) == 1:
            sys.exit(3)
        consumer.acknowledge(message)

    with gb.connect(url) as client:
        routed = client.create_producer(partitioned(f"{topic}-routed", 2), message_router=leave)
        with pytest.raises(gb.InvalidArgumentError, match=r"raised SystemExit\(3\)"):
            routed.send(b"x")
        view = client.create_table_view(topic)
        view.for_each_and_listen(leave)
        consumer = client.subscribe(topic, "s", interceptors=[leaving])
        client.subscribe(
            topic, "heard", message_listener=listen, negative_ack_redelivery_delay_s=0.01
        )
        sending = client.create_producer(topic, interceptors=[leaving])
        sending.send(b"a", partition_key="k")
        consumer.acknowledge(consumer.receive(60))
        while len(calls) < 2 or view.get("k") is None:
            sending.send(b"b", partition_key="k")
        assert calls[0] == b"a"
        assert b"b" in calls


def test_a_token_function_that_exits_is_refused(url: BrokerUrl, topic: str) -> None:
    auth = gb.AuthenticationToken(leave)
    with gb.connect(url, authentication=auth) as client, pytest.raises(gb.AuthenticationError):
        client.create_producer(topic)


class LeavingAuthentication(gb.Authentication):
    """A plug-in that exits."""

    def __init__(self) -> None:
        super().__init__("token")

    async def data(self) -> bytes:
        """Ends what asks."""
        sys.exit(3)


class LeavingReader(gb.CryptoKeyReader):
    """A reader of keys that exits."""

    get_public_key = get_private_key = leave


def test_plug_ins_that_exit_end_no_client(url: BrokerUrl, topic: str) -> None:
    with gb.connect(url) as client:
        with (
            gb.connect(url, authentication=LeavingAuthentication()) as other,
            pytest.raises(gb.AuthenticationError, match=r"data\(\) raised SystemExit"),
        ):
            other.create_producer(topic)
        with pytest.raises(gb.CryptoError, match="key reader raised SystemExit"):
            client.create_producer(topic, encryption_keys=["k"], crypto_key_reader=LeavingReader())
        client.create_producer(topic).send(b"still here")


@pytest.mark.parametrize("wrong", ["1", None, 1.5, 1 << 63])
def test_ids_of_wrong_numbers_are_refused(url: BrokerUrl, topic: str, wrong: Any) -> None:
    bad = gb.MessageId(wrong, 0)
    with gb.connect(url) as client, client.subscribe(topic, "s") as consumer:
        for call in (
            consumer.negative_acknowledge,
            consumer.acknowledge,
            consumer.acknowledge_cumulative,
            consumer.seek,
        ):
            with pytest.raises(gb.InvalidArgumentError, match="whole numbers of 64 bits"):
                call(bad)


def test_a_closed_client_takes_nothing(url: BrokerUrl, topic: str) -> None:
    client = gb.connect(url)
    sending = client.create_producer(topic)
    sending.send(b"a")
    client.close()
    for _ in range(2):
        with pytest.raises(gb.AlreadyClosedError):
            sending.send(b"b")
    with pytest.raises(gb.AlreadyClosedError):
        sending.send_nowait(b"c")
    with pytest.raises(gb.AlreadyClosedError):
        sending.submit(b"c")


def test_each_that_asks_gets_an_error_of_its_own(
    url: BrokerUrl, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Receipt:
        raise gb.ConnectionFailedError("for now", topic=topic)

    with gb.connect(url) as client, client.create_producer(topic) as sending:
        with monkeypatch.context() as patched:
            patched.setattr(Partitions, "send_checked", fail)
            receipt = sending.submit(b"a", properties={"k": "v"})
            seen = []
            for _ in range(2):
                with pytest.raises(gb.ConnectionFailedError) as caught:
                    receipt.wait()
                seen.append(caught.value)
        assert seen[0] is not seen[1]


def test_a_block_with_refused_messages_warns(
    url: BrokerUrl, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with gb.connect(url) as client:
        with client.create_producer(topic) as sending:
            receipts = [sending.send_nowait(b"x" * 6 * 1024 * 1024) for _ in range(2)]
        assert all(isinstance(each.error, gb.MessageTooBigError) for each in receipts)
        assert f"{topic}: closed; 2 messages were refused" in caplog.text
        caplog.clear()
        sending.close()
        assert not caplog.records

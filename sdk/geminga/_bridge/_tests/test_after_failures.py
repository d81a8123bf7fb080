"""What a failed message says about the next one: no more than the Trio producer says."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable

import pytest

import geminga.aio
import geminga.blocking as gb
from geminga._producing.receipt import Receipt
from geminga.producer import Producer
from geminga.testing import BrokerUrl


def terminate(url: BrokerUrl, topic: str) -> None:
    """End a topic by REST."""
    request = urllib.request.Request(
        f"{url.web_url}/admin/v2/{topic.replace('://', '/')}/terminate", data=b"", method="POST"
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


def by_key(message: gb.RoutedMessage, _: int) -> int:
    return int(message.partition_key or 0)


@pytest.fixture
def half_ended(
    url: BrokerUrl, topic: str, partitioned: Callable[[str, int], str]
) -> Callable[[], str]:
    """Make a topic whose second partition can be ended."""

    def end() -> str:
        terminate(url, f"{topic}-partition-1")
        return topic

    partitioned(topic, 2)
    return end


def test_an_ended_partition_ends_no_other(
    url: BrokerUrl, topic: str, half_ended: Callable[[], str]
) -> None:
    with gb.connect(url) as client, client.create_producer(topic, message_router=by_key) as sending:
        sending.send(b"a", partition_key="1")
        half_ended()
        for _ in range(2):
            with pytest.raises(gb.TopicTerminatedError):
                sending.send(b"b", partition_key="1")
        assert sending.send(b"c", partition_key="0").partition == 0
        failed = sending.submit(b"d", partition_key="1")
        assert sending.submit(b"e", partition_key="0").wait().partition == 0
        assert isinstance(failed.error, gb.TopicTerminatedError)
        assert sending.send_nowait(b"f", partition_key="0").wait().partition == 0
        terminate(url, f"{topic}-partition-0")
        with pytest.raises(gb.TopicTerminatedError):
            sending.send(b"g", partition_key="0")
        with pytest.raises(gb.TopicTerminatedError):
            sending.send(b"g", partition_key="0")
        # It is known that none is left: a message that is only handed over is refused at the call.
        with pytest.raises(gb.TopicTerminatedError):
            sending.send_nowait(b"h", partition_key="0")
        with pytest.raises(gb.TopicTerminatedError):
            sending.submit(b"h", partition_key="0")


def test_an_ended_partition_ends_no_other_for_asyncio(
    url: BrokerUrl, topic: str, half_ended: Callable[[], str]
) -> None:
    async def program() -> None:
        async with geminga.aio.connect(url) as client:
            sending = await client.create_producer(topic, message_router=by_key)
            await sending.send(b"a", partition_key="1")
            half_ended()
            for _ in range(2):
                with pytest.raises(geminga.TopicTerminatedError):
                    await sending.send(b"b", partition_key="1")
            assert (await sending.send(b"c", partition_key="0")).partition == 0

    asyncio.run(program())


def test_a_failure_that_passes_leaves_nothing(
    url: BrokerUrl, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Producer._send_checked
    failures = [gb.ConnectionFailedError("for now", topic=topic)]

    def fail(self: Producer, *arguments: object) -> Receipt:
        if failures:
            raise failures.pop()
        return send(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Producer, "_send_checked", fail)
    with gb.connect(url) as client, client.create_producer(topic) as sending:
        with pytest.raises(gb.ConnectionFailedError, match="for now"):
            sending.send(b"a", properties={"k": "v"})
        assert sending.send(b"b")
        assert sending.submit(b"c").wait()


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
            patched.setattr(Producer, "_send_checked", fail)
            receipt = sending.submit(b"a", properties={"k": "v"})
            seen = []
            for _ in range(2):
                with pytest.raises(gb.ConnectionFailedError) as caught:
                    receipt.wait()
                seen.append(caught.value)
        assert seen[0] is not seen[1]

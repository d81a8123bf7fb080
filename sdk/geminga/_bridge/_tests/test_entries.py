"""Entries in the blocking and the asyncio face."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

import geminga
import geminga.aio as ga
import geminga.blocking as gb
from geminga._bridge._tests.test_aio import in_asyncio
from geminga._bridge._tests.test_fork_and_signals import in_child
from geminga.testing import BrokerUrl


def publish(url: str, topic: str, count: int) -> None:
    """In batches of a hundred at most."""
    with (
        gb.connect(url) as client,
        client.create_producer(topic, batching_max_messages=100) as producer,
    ):
        for n in range(count):
            producer.submit(b"%d" % n)


def numbers(entries: list[geminga.EntryBatch]) -> list[int]:
    return [int(payload) for entry in entries for payload in entry.payloads()]


@in_asyncio
async def test_a_call_that_is_given_up_loses_nothing(url: str, topic: str) -> None:
    async with ga.connect(url) as client:
        reader = await client.create_reader(topic, ga.EARLIEST)
        producer = await client.create_producer(topic, batching_enabled=False)
        got: list[int] = []
        sent = 0
        for turn in range(30):
            task = asyncio.ensure_future(reader.read_batches(60))
            for _ in range(turn % 3):
                await producer.send(b"%d" % sent)
                sent += 1
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            task.cancel()
            try:
                got += numbers(await task)
            except asyncio.CancelledError:
                pass
            if turn % 4 == 3:
                while len(got) < sent:
                    got.append(int((await reader.read_next(60)).data))
        while len(got) < sent:
            got += numbers(await reader.read_batches(60))
        assert got == list(range(sent))


@pytest.mark.parametrize("ahead", ["messages", "entries"])
def test_a_reader_keeps_what_it_took_when_the_connection_breaks(
    url: BrokerUrl, topic: str, ahead: str
) -> None:
    """The broker continues after the entries that left the queue, so prefetched ones must not be
    dropped.
    """
    publish(url, topic, 400)
    with gb.connect(url) as client:
        reader = client.create_reader(topic, gb.EARLIEST)
        got = [int(reader.read_next(60).data)] if ahead == "messages" else []
        if ahead == "entries":
            # As left by a call that was abandoned when they had arrived.
            receiver = reader._receiver
            receiver.session.call(lambda: receiver.fill_entries(100, 60))
            assert receiver._entries
        session = client._session
        session.portal.post(cut, session.client)
        while len(got) < 400:
            got += numbers(reader.read_batches(60))
        assert got == list(range(400))
        with pytest.raises(gb.OperationTimeoutError):
            reader.read_batches(0.05)


def cut(client: geminga.Client) -> None:
    for connection in list(client._core.pool.connections):
        connection.close("cut")


def test_a_seek_recalls_what_is_on_its_way(url: BrokerUrl, topic: str) -> None:
    publish(url, topic, 300)
    with gb.connect(url) as client:
        reader = client.create_reader(topic, gb.EARLIEST)
        (first, *_) = reader.read_batches(60, bytes_max=1)
        receiver = reader._receiver
        receiver.session.call(lambda: receiver.fill_entries(1000, 60))
        assert receiver._entries
        assert reader.has_message_available()
        reader.seek(first.message_ids()[0])
        got: list[int] = []
        while len(got) < 299:
            got += numbers(reader.read_batches(60))
        assert got == list(range(1, 300))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_in_a_forked_child(url: BrokerUrl, topic: str) -> None:
    """The child gets none of the parent's entries."""
    publish(url, topic, 10)
    with gb.connect(url) as client:
        reader = client.create_reader(topic, gb.EARLIEST)
        receiver = reader._receiver
        receiver.session.call(lambda: receiver.fill_entries(1000, 60))

        def child() -> None:
            with pytest.raises(gb.ForkError):
                reader.read_batches(60)

        in_child(child)
        assert numbers(reader.read_batches(60)) == list(range(10))


def test_messages_taken_ahead_are_for_all_threads_that_wait(url: BrokerUrl, topic: str) -> None:
    """One thread's call prefetches a whole entry, and it may never call again."""
    with gb.connect(url) as client:
        consumer = client.subscribe(topic, "s")
        got: list[gb.Message] = []
        threads = [
            threading.Thread(target=lambda: got.append(consumer.receive(200))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        receiver = consumer._receiver

        async def all_wait() -> None:
            while receiver._filling.statistics().tasks_waiting < 2:  # two for the one at the inbox
                await trio.lowlevel.checkpoint()

        receiver.session.call(all_wait)
        with client.create_producer(topic) as producer:
            producer.submit_many([b"1", b"2", b"3"])
            producer.flush()
        for thread in threads:
            thread.join(60)
        assert sorted(message.data for message in got) == [b"1", b"2", b"3"]

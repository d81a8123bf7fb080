from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga._tests.fake_broker import FakeBroker, fake_broker


@asynccontextmanager
async def producing() -> AsyncIterator[tuple[FakeBroker, geminga.Client, geminga.Producer]]:
    async with fake_broker() as broker, broker.client() as client:
        yield broker, client, await client.create_producer("t")


async def put(producer: geminga.Producer, **values: bytes) -> None:
    for key, value in values.items():
        await producer.submit(value, partition_key=key)
    await producer.flush()


async def test_the_latest_of_each_key(autojump_clock: MockClock) -> None:
    async with producing() as (_, client, producer):
        await put(producer, a=b"1", b=b"1", c=b"1")
        await put(producer, a=b"2", c=b"")
        await producer.send(b"without key")
        view = await client.create_table_view("t")
        assert dict(view.items()) == {"a": b"2", "b": b"1"}
        assert set(view.keys()) == {"a", "b"}
        assert (len(view), "a" in view, "c" in view) == (2, True, False)
        assert (view.get("a"), view.get("c")) == (b"2", None)
        await put(producer, a=b"3", d=b"1")
        await view.refresh()
        assert (view.get("a"), view.get("d")) == (b"3", b"1")
        await view.aclose()
        await view.aclose()
        assert view.get("a") == b"3"
        await put(producer, a=b"4")
        with pytest.raises(geminga.AlreadyClosedError):
            await view.refresh()


async def test_listeners(autojump_clock: MockClock) -> None:
    async with producing() as (_, client, producer):
        await put(producer, a=b"1")
        heard: list[tuple[str, bytes | None]] = []
        all_heard: list[tuple[str, bytes | None]] = []

        def fails(key: str, value: bytes | None) -> None:
            raise ValueError

        async with await client.create_table_view("t") as view:
            view.listen(fails)
            view.listen(lambda key, value: heard.append((key, value)))
            view.for_each_and_listen(lambda key, value: all_heard.append((key, value)))
            await put(producer, a=b"2", b=b"1")
            await put(producer, a=b"")
            await view.refresh()
        assert heard == [("a", b"2"), ("b", b"1"), ("a", None)]
        assert all_heard == [("a", b"1"), *heard]


async def test_changes(autojump_clock: MockClock) -> None:
    async with producing() as (broker, client, producer):
        view = await client.create_table_view("t")
        changes = view.changes()
        closed = view.changes()
        seen: list[tuple[str, bytes | None]] = []

        async def watch() -> None:
            async for change in changes:
                seen.append(change)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await put(producer, a=b"1")
            await trio.sleep(1)
            closed.close()
            broker.cut()
            await trio.sleep(1)
            await put(producer, b=b"2")
            await trio.sleep(1)
            await view.aclose()
        assert seen == [("a", b"1"), ("b", b"2")]
        assert await closed.next_change() is None
        assert await view.changes().next_change() is None


async def test_slow_changes_are_joined(autojump_clock: MockClock) -> None:
    async with producing() as (_, client, producer):
        view = await client.create_table_view("t")
        changes = view.changes()
        for n in range(10):
            await put(producer, a=b"%d" % n, b=b"%d" % n)
        await view.refresh()
        assert [await changes.next_change() for _ in range(2)] == [("a", b"9"), ("b", b"9")]


async def test_partitions(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 3
        producer = await client.create_producer("p")
        view = await client.create_table_view("p")
        await put(producer, **{f"k{n}": b"%d" % n for n in range(20)})
        await view.refresh()
        assert dict(view.items()) == {f"k{n}": b"%d" % n for n in range(20)}
        await client.aclose()
        with pytest.raises(geminga.AlreadyClosedError):
            await view.refresh()

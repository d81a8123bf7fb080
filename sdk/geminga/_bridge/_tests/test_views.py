"""Table views in the faces."""

from __future__ import annotations

import geminga.aio as ga
import geminga.blocking as gb


def test_blocking(url: str, topic: str) -> None:
    heard: list[tuple[str, bytes | None]] = []
    with gb.connect(url) as client, client.create_producer(topic) as producer:
        producer.send(b"1", partition_key="a")
        with client.create_table_view(topic) as view:
            assert (len(view), "a" in view, view.get("a"), set(view.keys())) == (
                1,
                True,
                b"1",
                {"a"},
            )
            view.for_each_and_listen(lambda key, value: heard.append((key, value)))
            changes = view.changes()
            producer.send(b"2", partition_key="a")
            producer.send(b"", partition_key="b")
            assert next(changes) == ("a", b"2")
            view.refresh()
            assert dict(view.items()) == {"a": b"2"}
            changes.close()
        assert list(changes) == []
    assert heard == [("a", b"1"), ("a", b"2"), ("b", None)]


async def look(url: str, topic: str) -> None:
    async with (
        ga.connect(url) as client,
        await client.create_producer(topic) as producer,
        await client.create_table_view(topic) as view,
    ):
        changes = view.changes()
        await producer.send(b"1", partition_key="a")
        async for change in changes:
            assert change == ("a", b"1")
            break
        await view.refresh()
        assert view.get("a") == b"1"


def test_aio(url: str, topic: str) -> None:
    import asyncio

    asyncio.run(look(url, topic))

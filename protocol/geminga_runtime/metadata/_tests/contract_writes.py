"""The contract of writes that are done together (spec CL-01)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import pytest
import trio

from geminga_runtime.metadata.api import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataStore,
    Notification,
    Write,
)

AT = "/ids/id-"


def ledger(number: int) -> str:
    return f"/ledgers/{number // 3:02d}/{number}"


def both(log: str, version: int, number: int) -> Sequence[Write]:
    """A ledger, and the log that names it."""
    return [
        Write(ledger(number), b"ledger %d" % number, MUST_NOT_EXIST),
        Write(log, b"named %d" % number, version),
    ]


class WritesContract:
    async def test_writes_under_a_number(self, store: MetadataStore) -> None:
        """Parents are made as for any put."""
        versions: Sequence[int] = [MUST_NOT_EXIST, MUST_NOT_EXIST]
        for number in range(7):
            taken, versions = await store.put_numbered(AT, partial(both, "/logs/a", versions[1]))
            assert (taken, list(versions)) == (number, [0, number])
            node = await store.get("/logs/a")
            assert node is not None
            assert (node.value, node.stat.version) == (b"named %d" % number, number)
            assert not node.stat.ephemeral
            made = await store.get(ledger(number))
            assert made is not None
            assert (made.value, made.stat.version) == (b"ledger %d" % number, 0)
        with trio.fail_after(10):
            while await store.children("/ids"):  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def test_all_or_none(self, store: MetadataStore) -> None:
        await store.put("/logs/a", b"old")
        await store.put("/logs/a", b"old")
        for log, version in (
            ("/logs/a", 0),
            ("/logs/a", MUST_NOT_EXIST),
            ("/logs/a", 2),
            ("/logs/none", 0),
        ):
            with pytest.raises(BadVersion) as refused:
                await store.put_numbered(AT, partial(both, log, version))
            assert refused.value.path == log
        for number in range(4):  # their parents may be there
            assert not await store.exists(ledger(number))
        assert not await store.exists("/logs/none")
        node = await store.get("/logs/a")
        assert node is not None
        assert (node.value, node.stat.version) == (b"old", 1)

    async def test_a_number_is_given_out_once(self, store: MetadataStore) -> None:
        """Also one under which nothing could be written."""
        await store.put(ledger(0), b"here already")
        with pytest.raises(BadVersion) as refused:
            await store.put_numbered(AT, partial(both, "/log", MUST_NOT_EXIST))
        assert refused.value.path == ledger(0)
        taken, _ = await store.put_numbered(AT, partial(both, "/log", MUST_NOT_EXIST))
        made, _ = await store.put(AT, b"", sequential=True)
        again, _ = await store.put_numbered(AT, partial(both, "/log", 0))
        numbers = [taken, int(made.removeprefix(AT)), again]
        assert numbers == sorted({*numbers})
        assert numbers[0] > 0

    async def test_side_by_side(self, store: MetadataStore) -> None:
        numbers: list[int] = []

        async def make(log: str) -> None:
            version = MUST_NOT_EXIST
            for _ in range(5):
                taken, versions = await store.put_numbered(AT, partial(both, log, version))
                numbers.append(taken)
                version = versions[1]
                await trio.sleep(random.random() / 1000)

        async with trio.open_nursery() as nursery:
            for log in range(6):
                nursery.start_soon(make, f"/logs/{log}")
        assert len({*numbers}) == 30
        for log in range(6):
            node = await store.get(f"/logs/{log}")
            assert node is not None
            assert node.stat.version == 4
            assert await store.exists(ledger(int(node.value.split()[1])))

    async def test_watchers_are_told_of_each(self, store: MetadataStore) -> None:
        await store.put("/logs/a", b"")
        await store.put("/ledgers/00", b"")
        async with store.watch("/") as changes:
            await store.put_numbered(AT, partial(both, "/logs/a", 0))
            wanted = {
                Notification(Change.CREATED, ledger(0)),
                Notification(Change.CHILDREN, "/ledgers/00"),
                Notification(Change.MODIFIED, "/logs/a"),
            }
            with trio.fail_after(10):
                while wanted:
                    wanted.discard(await changes.receive())

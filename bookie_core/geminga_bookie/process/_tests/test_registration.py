"""A registration follows the store's sessions and the bookie's mode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from geminga_bookie.process.registration import (
    PATIENCE_S,
    RETRY_S,
    RegisteredElsewhere,
    Registration,
    registered,
    service_info,
)
from geminga_bookie.registered import endpoint
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

ID = "b1:3181"
WRITABLE, READ_ONLY = f"{paths.available()}/{ID}", f"{paths.readonly()}/{ID}"
VALUE = service_info("b1", 3181)


class Member:
    """A bookie that becomes read-only and writable at will, and whoever looks for it."""

    def __init__(self, store: MemoryMetadataStore | None = None) -> None:
        self.store = store or MemoryMetadataStore()
        self.others = self.store.another_session()
        self.read_only = False
        self.registration = Registration(self.store, ID, VALUE, lambda: self.read_only)

    def set_mode(self, *, read_only: bool) -> None:
        self.read_only = read_only
        self.registration.look()

    async def found(self) -> list[str]:
        return [path for path in (WRITABLE, READ_ONLY) if await self.others.exists(path)]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with registered(self.registration):
            yield


async def settle() -> None:
    await trio.sleep(3 * RETRY_S)


def test_the_value_is_as_apaches_bookie_writes_it() -> None:
    recorded = b'2"\n\x06bookie\x10\xfbN\x1a\t127.0.0.1"\nbookie-rpc'
    assert service_info("127.0.0.1", 10107) == recorded
    assert endpoint(recorded) == ("127.0.0.1", 10107)


async def test_modes(autojump_clock: object) -> None:
    member = Member()
    async with member.serving():
        node = await member.others.get(WRITABLE)
        assert node is not None
        assert (node.value, node.stat.ephemeral) == (VALUE, True)
        assert await member.found() == [WRITABLE]
        member.set_mode(read_only=True)
        await settle()
        assert await member.found() == [READ_ONLY]
        member.set_mode(read_only=False)
        await settle()
        assert await member.found() == [WRITABLE]
    assert await member.found() == []


async def test_a_bookie_is_never_unregistered_between_its_modes(autojump_clock: object) -> None:
    """Readers would take it for lost."""

    class Watched(MemoryMetadataStore):
        async def delete(self, path: str, expected_version: int | None = None) -> None:
            await super().delete(path, expected_version)
            seen.append([path for path in (WRITABLE, READ_ONLY) if await self.exists(path)])

    seen: list[list[str]] = []
    member = Member(Watched())
    async with member.serving():
        for read_only in (True, False, True):
            member.set_mode(read_only=read_only)
            await settle()
        assert seen == [[READ_ONLY], [WRITABLE], [READ_ONLY]]


async def test_a_change_that_failed_half_way_is_not_forgotten(autojump_clock: object) -> None:
    """Then the mode is the old one again, and its registration is not the only one."""

    class Failing(MemoryMetadataStore):
        async def delete(self, path: str, expected_version: int | None = None) -> None:
            if member.read_only and path == WRITABLE:
                member.set_mode(read_only=False)
                raise StoreUnavailable("away for a moment")
            await super().delete(path, expected_version)

    member = Member(Failing())
    async with member.serving():
        member.set_mode(read_only=True)
        await settle()
        assert not member.read_only
        assert await member.found() == [WRITABLE]


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_new_session_registers_again(autojump_clock: object, read_only: bool) -> None:
    member = Member()
    member.read_only = read_only
    path = READ_ONLY if read_only else WRITABLE
    async with member.serving():
        for _ in range(3):
            member.store.expire_session()
            assert await member.found() == []
            await settle()
            assert await member.found() == [path]


async def test_a_store_that_is_away_while_the_session_ends(autojump_clock: object) -> None:
    member = Member()
    async with member.serving():
        member.store.set_available(False)
        member.store.expire_session()
        member.set_mode(read_only=True)
        await settle()
        assert await member.found() == []
        member.store.set_available(True)
        await settle()
        assert await member.found() == [READ_ONLY]


async def test_the_node_of_a_killed_bookie_is_replaced(autojump_clock: object) -> None:
    """Its session may live on for half a minute, and would take the node with it."""
    member = Member()
    killed = member.store.another_session()
    for path in (WRITABLE, READ_ONLY):
        await killed.put(path, VALUE, epoch=killed.session.epoch)
    async with member.serving():
        assert await member.found() == [WRITABLE]
        killed.expire_session()
        await settle()
        assert await member.found() == [WRITABLE]


@pytest.mark.parametrize("path", [WRITABLE, READ_ONLY])
async def test_a_copy_of_a_bookie_that_serves_is_refused(autojump_clock: object, path: str) -> None:
    """It has the cookie and locks of its own, but lacks what came after the copy was made: clients
    must not be sent there. The one that serves stays registered.
    """
    member = Member()
    original = member.store.another_session()
    theirs = service_info("b1", 3182)
    await original.put(path, theirs, epoch=original.session.epoch)
    with pytest.raises(RegisteredElsewhere, match="bookie b1:3181 serves at b1:3182 already"):
        async with member.serving():
            raise AssertionError("it is a second one")
    node = await member.others.get(path)
    assert node is not None
    assert (await member.found(), node.value) == ([path], theirs)


async def test_one_that_was_killed_at_another_address_is_waited_for(autojump_clock: object) -> None:
    member = Member()
    killed = member.store.another_session()
    await killed.put(WRITABLE, service_info("b1", 3182), epoch=killed.session.epoch)
    async with trio.open_nursery() as nursery:

        async def expire() -> None:
            await trio.sleep(PATIENCE_S - 2 * RETRY_S)
            killed.expire_session()

        nursery.start_soon(expire)
        async with member.serving():
            node = await member.others.get(WRITABLE)
            assert node is not None
            assert node.value == VALUE


async def test_a_copy_that_came_while_the_session_was_lost(autojump_clock: object) -> None:
    """Neither takes the other's registration away, whoever ends first."""
    member = Member()
    other = member.store.another_session()
    theirs = service_info("b1", 3182)
    async with member.serving():
        member.store.expire_session()
        await other.put(WRITABLE, theirs, epoch=other.session.epoch)
        await settle()
    node = await member.others.get(WRITABLE)
    assert node is not None
    assert node.value == theirs


async def test_a_registration_that_fails_at_first_is_no_start() -> None:
    member = Member()
    member.store.set_available(False)
    with pytest.raises(StoreUnavailable):
        async with member.serving():
            raise AssertionError("it is not registered")


async def test_it_ends_when_the_store_does_not_answer(autojump_clock: object) -> None:
    member = Member()
    async with member.serving():
        member.store.set_available(False)
    member.store.set_available(True)
    assert await member.found() == [WRITABLE]  # until its session ends
    await member.store.aclose()
    assert await member.found() == []

"""Lists of ledgers to delete that a client wrote by way of another broker (BR-04)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.directory import KnownBookies
from geminga_broker.log._tests.world import NAME, World, numbered, publish
from geminga_broker.log.api import LogWriteFailed
from geminga_broker.log.catalog import (
    COMPACTED,
    COMPACTED_TOPIC,
    DELETED_PROPERTY,
    DELETING_PROPERTY,
    ROOT,
    delete_own,
    is_own,
)
from geminga_broker.log.cursor_store import LEFTOVERS, SIDE_LEDGERS
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import COMPONENT, LOG_NAME, LedgerDurability, LogOptions
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_broker.log.trim import RETRY_S_MAX, LogTrimmer
from geminga_protocol.bookkeeper import paths
from geminga_protocol.ids import EARLIEST
from geminga_protocol.managed_ledger import (
    decode_cursor_info,
    decode_ledger_info,
    encode_cursor_info,
    encode_ledger_info,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore

OTHERS = "rich/vault/persistent/t"
OF_A_SCHEMA = {COMPONENT: b"schema", "pulsar/schemaId": b"rich/vault/t"}
OF_COMPACTION = {COMPONENT: COMPACTED, COMPACTED_TOPIC: b"persistent://rich/vault/t"}


async def victims(client: BookkeeperClient) -> list[int]:
    """Ledgers of another tenant's topic: its own, its cursor's, its schema's, its compaction's."""
    durability = LedgerDurability()
    chosen = (
        durability.ledger_options(OTHERS),
        durability.ledger_options(OTHERS, "s"),
        LedgerOptions(custom_metadata=OF_A_SCHEMA),
        LedgerOptions(custom_metadata=OF_COMPACTION),
    )
    return [(await client.create(options)).ledger_id for options in chosen]


async def list_in_log(world: World, ledger_ids: list[int], *properties: str) -> None:
    """As a topic's properties."""
    path = f"{ROOT}/{NAME}"
    node = await world.store.get(path)
    assert node is not None
    info = decode_ledger_info(node.value)
    info.properties.add(key=DELETING_PROPERTY, value=",".join(map(str, ledger_ids)))
    for key in properties:
        del info.ledgerInfo[:]
        info.properties.add(key=key, value="true")
    await world.store.put(path, encode_ledger_info(info))


async def list_in_cursor(world: World, ledger_ids: list[int], key: str) -> None:
    """As a subscription's properties."""
    path = f"{ROOT}/{NAME}/s"
    node = await world.store.get(path)
    assert node is not None
    info = decode_cursor_info(node.value)
    info.cursorProperties.add(name=key, value=",".join(map(str, ledger_ids)))
    await world.store.put(path, encode_cursor_info(info))


async def trim(broker: ManagedLedgerFactory) -> None:
    await (await broker.open(NAME)).trim()


async def acknowledge(broker: ManagedLedgerFactory) -> None:
    log = await broker.open(NAME)
    cursor = log.cursors["s"]
    cursor.ack_cumulative(log.last_position)
    await cursor.persist()
    await log.trim()


async def delete_subscription(broker: ManagedLedgerFactory) -> None:
    log = await broker.open(NAME)
    await log.delete_cursor("s")
    await log.trim()


async def delete_log(broker: ManagedLedgerFactory) -> None:
    await (await broker.open(NAME)).delete()


async def collect_snapshots(broker: ManagedLedgerFactory) -> None:
    log = await broker.open(NAME)
    snapshots = SnapshotLog(log.cursors["s"].writer, broker.client, LogOptions(), (NAME, "s"))
    await snapshots.keep([])


async def finish_deletion(broker: ManagedLedgerFactory) -> None:
    assert not await broker.exists(NAME) or await broker.open(NAME)


@pytest.mark.parametrize(
    ("where", "acts"),
    [
        (DELETING_PROPERTY, [trim, delete_log]),
        (DELETED_PROPERTY, [finish_deletion]),
        (LEFTOVERS, [trim, acknowledge, delete_subscription, delete_log]),
        (SIDE_LEDGERS, [trim, collect_snapshots, delete_subscription, delete_log]),
    ],
)
async def test_listed_ledgers_of_others_stay(
    where: str, acts: list[Callable[[ManagedLedgerFactory], Awaitable[None]]]
) -> None:
    for act in acts:
        world = World()
        async with world.broker() as broker:
            stay = await victims(broker.client)
            log = await broker.open(NAME)
            await publish(log, numbered(3))
            await log.open_cursor("s", initial=EARLIEST)
        if where in (LEFTOVERS, SIDE_LEDGERS):
            await list_in_cursor(world, stay, where)
        else:
            await list_in_log(world, stay, *([where] if where == DELETED_PROPERTY else ()))
        async with world.broker() as broker:
            await act(broker)
            await wait_all_tasks_blocked()
            left = {ledger_id async for ledger_id in broker.client.ledgers()}
        assert left >= set(stay), (where, act)


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, True),
        ({LOG_NAME: NAME.encode()}, True),
        ({LOG_NAME: OTHERS.encode()}, False),
        ({COMPACTED_TOPIC: b"persistent://public/default/t"}, True),
        ({COMPACTED_TOPIC: b"persistent://rich/vault/t"}, False),
        ({COMPACTED_TOPIC: b"\xff"}, False),
        ({COMPACTED_TOPIC: b"://"}, False),
        (OF_A_SCHEMA, False),
    ],
)
def test_whose_it_is(about: dict[str, bytes], expected: bool) -> None:
    assert is_own(about, NAME) is expected


async def test_a_ledger_without_valid_metadata_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Whose it is can't be told; the deletion of others goes on."""
    store = MemoryMetadataStore()
    client = BookkeeperClient(KnownBookies(), store)
    await store.put(paths.ledger(7), b"?")
    await delete_own(client, NAME, 7)
    assert await store.exists(paths.ledger(7))
    assert "ledger 7 has no valid metadata, and stays" in caplog.text


@pytest.mark.slow
async def test_failed_trims_are_tried_less_and_less_often(autojump_clock: MockClock) -> None:
    world = World()
    tried: list[float] = []
    fails = True

    async def trim(_: LogTrimmer, retention: object = None) -> None:
        tried.append(trio.current_time())
        if fails:
            raise LogWriteFailed("the store is away")

    async with world.broker() as broker:
        log = await broker.open(NAME)
        with pytest.MonkeyPatch.context() as failing:
            failing.setattr(LogTrimmer, "trim", trim)
            for _ in range(4 * 3600):
                log._trimmer.schedule()
                await trio.sleep(0.5)
            waits = [after - before for before, after in pairwise(tried)]
            assert waits[:4] == pytest.approx([1, 2, 4, 8], abs=0.6)
            assert len(tried) < 20
            assert max(waits) == pytest.approx(RETRY_S_MAX, abs=1)
            fails = False
            await trio.sleep(RETRY_S_MAX)
            tried.clear()
            for _ in range(4):
                log._trimmer.schedule()
                await trio.sleep(0.5)
            assert len(tried) == 4

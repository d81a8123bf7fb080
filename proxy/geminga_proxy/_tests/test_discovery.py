"""Brokers are found in the metadata store (spec PX-03)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from geminga_protocol.commands import connection, lookup
from geminga_proxy import discovery
from geminga_proxy.addresses import Address
from geminga_proxy.binary._tests.played import TOPIC, C, brokers, client, proxied, until
from geminga_proxy.config import load_config
from geminga_proxy.discovery import BROKERS_PATH, BrokerRecord, Finder, store_file
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.sqlite import SqliteMetadataStore
from geminga_runtime.settings import ConfigError


def record(port: int) -> bytes:
    url = f"pulsar://127.0.0.1:{port}"
    told = BrokerRecord(pulsar_service_url=url, web_service_url="http://127.0.0.1:1")
    return msgspec.json.encode(told)


async def test_brokers_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LOOK_S", 0.02)
    file = tmp_path / "metadata.sqlite"
    async with (
        brokers(2) as (first, second),
        aclosing(await SqliteMetadataStore.open(file)) as store,
    ):
        await store.put(f"{BROKERS_PATH}/a:1", record(first.port), epoch=store.session.epoch)
        await store.put(f"{BROKERS_PATH}/broken:1", b"{", epoch=store.session.epoch)
        await store.put(
            f"{BROKERS_PATH}/c:1", b'{"webServiceUrl":"\xff"}', epoch=store.session.epoch
        )
        settings = {"brokerServiceURL": "", "metadataStoreUrl": f"sqlite://{file}"}
        async with proxied(first, **settings) as running:
            known = running.service.brokers
            assert known.listed == [Address("127.0.0.1", first.port)]
            wire = await client(running)
            await wire.ask(connection.connect("c"), C.CONNECTED)
            await wire.ask(lookup.lookup(TOPIC, 1), C.LOOKUP_RESPONSE)
            await store.put(f"{BROKERS_PATH}/b:1", record(second.port), epoch=store.session.epoch)
            await store.delete(f"{BROKERS_PATH}/a:1")
            await until(lambda: known.listed == [Address("127.0.0.1", second.port)])
            assert known.targets.is_known(Address("127.0.0.1", second.port))
            other = await client(running)
            await other.ask(connection.connect("c"), C.CONNECTED)
            await other.ask(lookup.lookup(TOPIC, 1), C.LOOKUP_RESPONSE)
            assert len(second.hellos) == 1
            await store.delete(f"{BROKERS_PATH}/b:1")
            await trio.sleep(0.1)
            assert known.listed == [Address("127.0.0.1", second.port)]


async def test_a_store_that_is_not_there_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "LOOK_S", 0.005)
    file, seen = tmp_path / "metadata.sqlite", trio.Event()
    heard: list[int] = []

    def found(records: object) -> None:
        assert isinstance(records, list)
        heard.append(len(records))
        if records:
            seen.set()

    async with trio.open_nursery() as nursery:
        finder = Finder(f"sqlite://{file}", found)
        nursery.start_soon(finder.run, 30)
        await finder.looked.wait()
        with trio.fail_after(60):
            while "can't be looked up now" not in caplog.text:  # noqa: ASYNC110
                await trio.sleep(0.005)
        await trio.sleep(0.05)
        assert caplog.text.count("can't be looked up now") == 1
        store = await SqliteMetadataStore.open(file)
        await store.put(f"{BROKERS_PATH}/a:1", record(1), epoch=store.session.epoch)
        with trio.fail_after(60):
            await seen.wait()
        assert heard[-1] == 1
        await store.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("zk:localhost:x", "metadataStoreUrl: metadata store 'zk:localhost:x'"),
        ("etcd:http://localhost:2379", "brokers are found in zk:HOST:2181"),
        ("rocksdb:///data", "brokers are found in zk:HOST:2181"),
        ("sqlite://", "not of the form"),
        ("memory:local", "another process"),
        ("sqlite://host/metadata.sqlite", "not of the form"),
    ],
)
def test_stores_that_cannot_be_read(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_config(None, {}, {"metadataStoreUrl": url})


async def test_brokers_in_a_store_that_notifies(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    store = MemoryMetadataStore()
    heard: list[list[str | None]] = []

    def found(records: Sequence[BrokerRecord]) -> None:
        heard.append([each.pulsar_service_url for each in records])

    async def settle() -> None:
        await trio.sleep(10)

    one, two = (f"pulsar://127.0.0.1:{port}" for port in (1, 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Finder("zk:h", found).follow, store)
        await settle()
        await store.put(f"{BROKERS_PATH}/a:1", record(1), epoch=store.session.epoch)
        await settle()
        store.set_available(False)
        await store_changes_unseen(store)
        await settle()
        assert heard == [[], [one]]
        assert caplog.text.count("can't be looked up now") == 1
        store.set_available(True)
        await settle()
        assert heard == [[], [one], [one, two]]
        await store.delete(f"{BROKERS_PATH}/a:1")
        await settle()
        assert heard[-1] == [two]
        nursery.cancel_scope.cancel()


async def store_changes_unseen(store: MemoryMetadataStore) -> None:
    """By another process, while ours has no connection."""
    other = store.another_session()
    await other.put(f"{BROKERS_PATH}/b:1", record(2), epoch=other.session.epoch)


def test_files() -> None:
    assert store_file("sqlite:///data/my%20dir/metadata.sqlite") == Path(
        "/data/my dir/metadata.sqlite"
    )

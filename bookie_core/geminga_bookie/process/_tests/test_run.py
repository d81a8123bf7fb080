"""The process's parts together, on a metadata store in memory."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.support import add, until
from geminga_bookie.errors import BookieReadOnly, DataDirError, NoSuchEntry
from geminga_bookie.integrity import check
from geminga_bookie.process import run
from geminga_bookie.process.config import BookieConfig, load_config
from geminga_bookie.process.run import ReadOnlyRefused, RunningBookie, run_bookie
from geminga_bookie.storage.data_dirs import UNSYNCED_NAME
from geminga_bookie.storage.doubt import LIMBO_NAME
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import RemoteBookie, open_remote
from geminga_protocol.bookkeeper import paths
from geminga_runtime._tests.certificates import Authority
from geminga_runtime.errors import BindFailed
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.tls import ClientTls, TlsContexts


class Store(MemoryMetadataStore):
    """Survives the process."""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    await made.put(paths.INSTANCE_ID, b"cluster-1")

    async def opened(_config: BookieConfig) -> Store:
        await trio.lowlevel.checkpoint()
        return made

    monkeypatch.setattr(run, "_open_store", opened)
    return made


def config(folder: Path, **settings: str) -> BookieConfig:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    every = {
        "bookiePort": str(port),
        "advertisedAddress": "127.0.0.1",
        "journalDirectories": str(folder / "journal"),
        "ledgerDirectories": str(folder / "ledgers"),
        "diskUsageThreshold": "1",
        **settings,
    }
    return load_config(None, {}, every)


@asynccontextmanager
async def running(settings: BookieConfig) -> AsyncIterator[RunningBookie]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run_bookie, settings)
        nursery.cancel_scope.cancel()


def remote(
    bookie: RunningBookie, options: RemoteOptions | None = None
) -> AbstractAsyncContextManager[RemoteBookie]:
    return open_remote(bookie.endpoint.bookie_id, "127.0.0.1", bookie.endpoint.port, options)


async def test_it_serves_while_it_is_registered(store: Store, tmp_path: Path) -> None:
    settings = config(tmp_path)
    for first in (0, 3):
        async with running(settings) as bookie:
            assert bookie.url == f"bookie://{bookie.endpoint.bookie_id}"
            assert await store.exists(f"{paths.available()}/{bookie.endpoint.bookie_id}")
            async with remote(bookie) as port:
                await add(port, 1, range(first, first + 3))
                found = await port.read(1, 0, entries_max=10, bytes_max=1 << 20)
                assert len(found) == first + 3
                assert (await port.info()).total_bytes > 0
        assert await store.children(paths.available()) == []


async def test_doubts_end(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger 1 has no metadata any more: nobody asks for it."""
    monkeypatch.setattr(check, "QUIET_S", 0.0)
    settings = config(tmp_path)
    async with running(settings) as bookie, remote(bookie) as port:
        await add(port, 1, range(3))
    (tmp_path / "journal" / UNSYNCED_NAME).touch()
    async with running(settings) as bookie:
        table = bookie.bookie.storage.table
        assert table.is_in_limbo
        limbo = tmp_path / "journal" / LIMBO_NAME
        await until(lambda: not limbo.exists())
        assert not table.is_in_limbo
        with pytest.raises(NoSuchEntry):
            await bookie.bookie.read(1, 3, entries_max=1, bytes_max=1)


async def test_lost_disks_need_both_of_apaches_keys(store: Store, tmp_path: Path) -> None:
    checks, stamps = "dataIntegrityChecking", "dataIntegrityStampMissingCookies"
    for keys in ([], [checks], [stamps], [checks, stamps]):
        settings = config(tmp_path, **dict.fromkeys(keys, "true"))
        assert settings.bookie_options("b:1").heals_lost_disks == (len(keys) == 2)


async def test_tls_is_offered(store: Store, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    leaf = authority.server()
    settings = config(
        tmp_path,
        tlsProviderFactoryClass="org.apache.bookkeeper.tls.TLSContextFactory",
        tlsCertificatePath=str(leaf.certificate),
        tlsKeyStore=str(leaf.key),
        tlsTrustStore=str(authority.certificate),
    )
    trusted = TlsContexts(ClientTls(trust_certs_file=str(authority.certificate)))
    async with running(settings) as bookie:
        for options in (RemoteOptions(tls=trusted), RemoteOptions()):
            async with remote(bookie, options) as port:
                await add(port, 1, [0])


async def test_its_http_port(store: Store, tmp_path: Path) -> None:
    settings = {"httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": "0"}
    async with running(config(tmp_path, **settings)) as bookie:
        assert bookie.http_port is not None
        stream = await trio.open_tcp_stream("127.0.0.1", bookie.http_port)
        async with stream:
            await stream.send_all(b"GET /heartbeat HTTP/1.0\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 OK")


async def test_forced_to_be_read_only(store: Store, tmp_path: Path) -> None:
    """Recovery goes on, or no ledger of its could be closed."""
    async with running(config(tmp_path, forceReadOnlyBookie="true")) as bookie:
        bookie_id = bookie.endpoint.bookie_id
        assert await store.children(paths.readonly()) == [bookie_id]
        assert not await store.exists(f"{paths.available()}/{bookie_id}")
        async with remote(bookie) as port:
            with pytest.raises(BookieReadOnly):
                await add(port, 1, [0])
            await add(port, 1, [0], recovery=True)


async def test_a_full_disk_makes_it_read_only(store: Store, tmp_path: Path) -> None:
    async with running(config(tmp_path, diskUsageThreshold="0.01")) as bookie:
        assert await store.children(paths.readonly()) == [bookie.endpoint.bookie_id]


async def test_a_full_disk_ends_it_where_read_only_is_not_allowed(
    store: Store, tmp_path: Path
) -> None:
    settings = config(tmp_path, diskUsageThreshold="0.01", readOnlyModeEnabled="false")
    with pytest.raises(ExceptionGroup) as caught:
        async with running(settings):
            await trio.sleep_forever()
    assert caught.group_contains(ReadOnlyRefused, match="readOnlyModeEnabled is false, and")


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("taken", ["bookiePort", "httpServerPort"])
async def test_a_port_that_is_taken(store: Store, tmp_path: Path, taken: str) -> None:
    """It leaves nothing behind: the bookie may get another port, and so another id."""
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        settings = config(tmp_path, httpServerEnabled="true", **{taken: str(port)})
        with pytest.raises(ExceptionGroup) as caught:
            async with running(settings):
                raise AssertionError("it can't listen")
    assert caught.group_contains(BindFailed, match=taken)
    assert await store.children(paths.available()) == []
    assert await store.children(paths.cookies()) == []
    assert not files_in(tmp_path)


async def test_one_port_for_both_at_the_interfaces_address(store: Store, tmp_path: Path) -> None:
    """What the configuration alone doesn't tell."""
    port = str(config(tmp_path).network.port)
    settings = config(
        tmp_path,
        listeningInterface="lo",
        bookiePort=port,
        httpServerEnabled="true",
        httpServerHost="127.0.0.1",
        httpServerPort=port,
    )
    with pytest.raises(ExceptionGroup) as caught:
        async with running(settings):
            raise AssertionError("it can't listen")
    assert caught.group_contains(BindFailed, match="httpServerPort")
    assert await store.children(paths.cookies()) == []
    assert not files_in(tmp_path)


async def test_a_store_that_is_not_prepared(store: Store, tmp_path: Path) -> None:
    await store.delete(paths.INSTANCE_ID)
    with pytest.raises(ExceptionGroup) as caught:
        async with running(config(tmp_path)):
            raise AssertionError("it belongs nowhere")
    assert caught.group_contains(DataDirError)

"""Cookies and marks: a bookie without its data must not answer for it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from geminga_bookie._tests.support import add, small_options
from geminga_bookie.errors import DataDirError
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import BookieOptions
from geminga_bookie.process.identity import LAYOUT_VALUE, parse_cookie
from geminga_bookie.process.registration import service_info
from geminga_bookie.process.run import open_member
from geminga_protocol.bookkeeper import paths
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion
from geminga_runtime.metadata.memory import MemoryMetadataStore

ID = "bookie-1:3181"
COOKIE = paths.cookie(ID)
APACHES = b'5\nbookieHost: "bookie-1:3181"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n'


@pytest.fixture
async def store() -> MemoryMetadataStore:
    made = MemoryMetadataStore()
    await made.put(paths.INSTANCE_ID, b"cluster-1")
    return made


async def start(store: MemoryMetadataStore, options: BookieOptions, *, entries: int = 0) -> None:
    """Once, and stop."""
    async with open_member(store, options) as bookie:
        for entry_id in range(entries):
            await add(bookie, 1, [entry_id])


async def cookie_of(store: MemoryMetadataStore) -> str:
    node = await store.get(COOKIE)
    assert node is not None
    return node.value.decode()


async def test_a_new_bookies_cookie(store: MemoryMetadataStore, tmp_path: Path) -> None:
    """As Apache's bookie writes it, and a comment."""
    options = replace(small_options(tmp_path), index_dirs=(tmp_path / "index",))
    await start(store, options)
    lines = (await cookie_of(store)).splitlines()
    assert lines[:-1] == [
        "5",
        f'bookieHost: "{ID}"',
        f'journalDir: "{tmp_path}/journal"',
        f'ledgerDirs: "1\\t{tmp_path}/ledgers"',
        'instanceId: "cluster-1"',
        f'indexDirs: "1\\t{tmp_path}/index"',
    ]
    assert lines[-1].startswith("# geminga instance ")
    node = await store.get(paths.LAYOUT)
    assert node is not None
    assert node.value == LAYOUT_VALUE


async def test_it_starts_again_where_it_was(store: MemoryMetadataStore, tmp_path: Path) -> None:
    options = small_options(tmp_path)
    await start(store, options)
    first = await store.get(COOKIE)
    await start(store, options, entries=3)
    await start(store, options)
    assert await store.get(COOKIE) == first


async def test_lost_disks_are_refused_at_each_start(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    options = small_options(tmp_path)
    await start(store, options, entries=3)
    shutil.rmtree(tmp_path)
    for _ in range(3):
        with pytest.raises(DataDirError, match=r"knows bookie .* but its directories are empty"):
            await start(store, options)
    await store.delete(COOKIE)
    await start(store, options)


async def test_a_second_bookie_is_told_of_the_one_that_runs(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    """On another machine, with the configuration of the first: no disk is lost."""
    await start(store, small_options(tmp_path / "1"), entries=3)
    second = small_options(tmp_path / "2")
    with pytest.raises(DataDirError) as alone:
        await start(store, second)
    assert "is registered" not in str(alone.value)
    await store.put(
        f"{paths.available()}/{ID}", service_info("one", 3181), epoch=store.session.epoch
    )
    with pytest.raises(DataDirError) as beside:
        await start(store, second)
    assert str(beside.value) == (
        f"{alone.value}; a bookie with this id is registered at one:3181 now: if that one runs, "
        "this one needs a bookieId, or an advertisedAddress and bookiePort, of its own"
    )


async def test_a_lost_disk_of_two_is_refused(store: MemoryMetadataStore, tmp_path: Path) -> None:
    options = small_options(tmp_path)
    await start(store, options, entries=3)
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(DataDirError, match="ledgers is empty although"):
        await start(store, options)


async def test_a_second_bookie_of_the_same_id_is_refused_for_ever(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    """It started at the same time: both found no cookie. Its empty directories bear the id and the
    cluster by then, and must not pass for those of the first at its next start.
    """
    first, second = small_options(tmp_path / "1"), small_options(tmp_path / "2")

    class Meanwhile(SteppedStore):
        """The first bookie's cookie comes right before the second one's."""

        @asynccontextmanager
        async def step(
            self, operation: str, path: str, expected_version: int | None
        ) -> AsyncIterator[None]:
            if operation == "put" and path == COOKIE and expected_version == MUST_NOT_EXIST:
                raise BadVersion(path)
            yield

    other = Meanwhile()
    await other.put(paths.INSTANCE_ID, b"cluster-1")
    with pytest.raises(DataDirError, match=r"another bookie .* has just started"):
        await start(other, second)
    await start(store, first, entries=3)
    for _ in range(2):
        with pytest.raises(DataDirError, match="was written for other directories"):
            await start(store, second)
    await start(store, first)


async def test_a_first_start_that_was_killed_is_taken_up_again(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    """Its directories have their marks, and the cluster no cookie yet."""
    options = small_options(tmp_path)
    await start(store, options)
    await store.delete(COOKIE)
    await start(store, options, entries=3)
    await start(store, options)


async def test_directories_that_were_moved(store: MemoryMetadataStore, tmp_path: Path) -> None:
    await start(store, small_options(tmp_path / "a"), entries=3)
    shutil.move(tmp_path / "a", tmp_path / "b")
    await start(store, small_options(tmp_path / "b"))
    assert f'journalDir: "{tmp_path}/b/journal"' in await cookie_of(store)


async def test_a_decommissioned_bookie_is_refused(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    options = small_options(tmp_path)
    await start(store, options, entries=3)
    await store.delete(COOKIE)
    with pytest.raises(DataDirError, match="the cluster has no cookie of it"):
        await start(store, options)
    assert not await store.exists(COOKIE)


async def test_another_cluster_is_refused(store: MemoryMetadataStore, tmp_path: Path) -> None:
    """Also the same store, prepared anew."""
    options = small_options(tmp_path)
    await start(store, options, entries=3)
    await store.put(paths.INSTANCE_ID, b"cluster-2")
    with pytest.raises(DataDirError, match="belongs to cluster cluster-1, not cluster-2"):
        await start(store, options)


@pytest.mark.parametrize(
    ("cookie", "why"),
    [
        (APACHES + b'instanceId: "cluster-2"\n', "of cluster cluster-2, not of"),
        (APACHES, "of cluster without id"),
        (APACHES.replace(b"bookie-1", b"bookie-2"), "is of bookie bookie-2:3181"),
        (b"3\nbookie-1:3181\n/j\n1\t/l\n", "its version is 3"),
        (b"", "can't be read"),
        (b"5\nbookieHost: 3", "can't be read"),
    ],
)
async def test_other_cookies_are_refused(
    store: MemoryMetadataStore, tmp_path: Path, cookie: bytes, why: str
) -> None:
    options = small_options(tmp_path)
    await start(store, options, entries=3)
    await store.put(COOKIE, cookie)
    with pytest.raises(DataDirError, match=why):
        await start(store, options)


async def test_a_cookie_that_apaches_tools_wrote_anew(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    """Without the comment, which comes back; but nothing starts empty by it."""
    options = small_options(tmp_path)
    theirs = APACHES + b'instanceId: "cluster-1"\n'
    await start(store, options)
    await store.put(COOKIE, theirs)
    with pytest.raises(DataDirError, match="written for other directories, on /j"):
        await start(store, options)
    await store.delete(COOKIE)
    await start(store, options, entries=3)
    await store.put(COOKIE, theirs)
    await start(store, options)
    cookie, instance = parse_cookie((await cookie_of(store)).encode(), COOKIE)
    assert cookie.journalDir == f"{tmp_path}/journal"
    assert len(instance) == 32


async def test_a_store_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataDirError, match="has no /ledgers/INSTANCEID: prepare it by"):
        await start(MemoryMetadataStore(), small_options(tmp_path))
    assert not (tmp_path / "journal").exists()


async def test_an_unknown_layout_is_refused(store: MemoryMetadataStore, tmp_path: Path) -> None:
    await store.put(paths.LAYOUT, LAYOUT_VALUE.replace(b"Hierarchical", b"Flat"))
    with pytest.raises(DataDirError, match="only LongHierarchical"):
        await start(store, small_options(tmp_path))


async def test_directories_of_apaches_bookies_are_refused(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    """And ours have what theirs refuse."""
    options = small_options(tmp_path)
    mark = tmp_path / "ledgers" / "current" / "VERSION"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(APACHES)
    with pytest.raises(DataDirError, match="ledgers has data of one of Apache's bookies"):
        await start(store, options)
    assert not (tmp_path / "journal").exists()
    shutil.rmtree(tmp_path / "ledgers")
    await start(store, options)
    for name in ("journal", "ledgers"):
        text = (tmp_path / name / "current" / "VERSION").read_text()
        assert not text.splitlines()[0].strip().isdigit()


async def test_a_standalones_directories_are_refused(
    store: MemoryMetadataStore, tmp_path: Path
) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as bookie:
        await add(bookie, 1, [0])
    with pytest.raises(DataDirError, match="belongs to cluster none, not cluster-1"):
        await start(store, options)

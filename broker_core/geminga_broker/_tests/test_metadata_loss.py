"""Metadata that are older than the bookie's data: refused, or accepted on request."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

import pytest
import trio

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.append import append_durably
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import DataDirError
from geminga_broker.config import BookieConfig, BrokerConfig
from geminga_broker.data_dir import BOOKIE_DIRECTORY, METADATA_FILE, DataDirUnusable
from geminga_broker.metadata_loss import DataAge
from geminga_broker.standalone import accept_metadata_loss, open_ledgers
from geminga_broker.standalone_parts import StandaloneOptions, open_store
from geminga_protocol._tests.rounds import rounds
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.embedded import EmbeddedStore

LEDGERS = 6
CONFIG = BrokerConfig(bookie=BookieConfig(journal_file_mb=1))


class Moment(NamedTuple):
    """The metadata store's files at one time, by the ends of their names."""

    files: dict[str, bytes]
    ledgers: int
    """How many were made, and hold an entry."""


@asynccontextmanager
async def served(data_dir: Path) -> AsyncIterator[BookkeeperClient]:
    """As `run_standalone`, without the broker. Raises DataDirUnusable."""
    options = StandaloneOptions(CONFIG, data_dir)
    store = await open_store(options)
    try:
        check = DataAge(store, data_dir)
        async with open_ledgers(options, store, check) as client:
            yield client
    finally:
        await store.aclose()


async def make_ledger(client: BookkeeperClient) -> int:
    writer = await client.create(LedgerOptions(1, 1, 1))
    await append_durably(writer, [[b"kept"]])
    return writer.ledger_id


def moment(data_dir: Path, ledgers: int) -> Moment:
    ends = ("", "-wal", "-shm")
    return Moment({end: (data_dir / f"{METADATA_FILE}{end}").read_bytes() for end in ends}, ledgers)


def put_back(data_dir: Path, files: dict[str, bytes]) -> None:
    for path in data_dir.glob(f"{METADATA_FILE}*"):
        path.unlink()
    for end, data in files.items():
        (data_dir / f"{METADATA_FILE}{end}").write_bytes(data)


async def lived(data_dir: Path) -> list[Moment]:
    """A life of ledgers made one after the other, and the moments behind each of them."""
    moments = []
    async with served(data_dir) as client:
        for number in range(LEDGERS):
            assert await make_ledger(client) == number
            moments.append(moment(data_dir, number + 1))
    return moments


async def known(data_dir: Path) -> list[int] | str:
    """The ledgers after a start; the sentence if it is refused."""
    try:
        async with served(data_dir) as client:
            return [ledger_id async for ledger_id in client.ledgers()]
    except (DataDirUnusable, DataDirError) as refused:  # the latter without the bookie's cookie
        return str(refused)


async def test_older_metadata_are_refused_again_and_again(tmp_path: Path) -> None:
    """By the ids, if nothing else tells. A refused start changes nothing of that."""
    data_dir = tmp_path / "data"
    moments = await lived(data_dir)
    for each in moments[:-1]:
        put_back(data_dir, each.files)
        for _ in range(3):
            said = await known(data_dir)
            assert f"have ledger {LEDGERS - 1}, " in said, each.ledgers
            assert f"ids below {each.ledgers} only" in said
            assert "--accept-metadata-loss" in said
    put_back(data_dir, moments[-1].files)
    assert await known(data_dir) == list(range(LEDGERS))


async def test_a_changed_log_is_refused_or_no_ledger_is_lost(tmp_path: Path) -> None:
    """Cut or changed anywhere. With the index beside the log nothing gets by; without it what may
    is a cut in the making of the newest ledger.
    """
    data_dir, bookie = tmp_path / "data", tmp_path / "bookie"
    moments = await lived(data_dir)
    shutil.copytree(data_dir / BOOKIE_DIRECTORY, bookie)
    whole, refused = list(range(LEDGERS)), 0
    for seed in range(rounds(60)):
        draw = random.Random(seed)
        files = dict(moments[-1].files)
        log = bytearray(files["-wal"])
        at = draw.randrange(len(log))
        if draw.random() < 0.5:
            del log[at:]
        else:
            log[at] ^= 1 << draw.randrange(8)
        files["-wal"] = bytes(log)
        has_index = draw.random() < 0.5
        if not has_index:
            del files["-shm"]
        put_back(data_dir, files)
        found = await known(data_dir)
        if isinstance(found, str):
            refused += 1
        elif has_index:
            assert found == whole, seed
        else:
            assert found in (whole, whole[:-1]), seed
    assert refused > 10


async def test_a_loss_that_is_accepted(tmp_path: Path) -> None:
    """The ids of what is given up are never used again, and the bookie collects it."""
    data_dir = tmp_path / "data"
    options = StandaloneOptions(CONFIG, data_dir)
    moments = await lived(data_dir)
    assert await accept_metadata_loss(options) == []
    put_back(data_dir, moments[2].files)
    (said,) = await accept_metadata_loss(options)
    assert said.startswith(f"ledgers 3 to {LEDGERS - 1} are unknown to the metadata: ")
    assert await accept_metadata_loss(options) == []
    async with served(data_dir) as client:
        assert await make_ledger(client) == LEDGERS
        assert [each async for each in client.ledgers()] == [0, 1, 2, LEDGERS]


async def test_a_damaged_log_that_is_accepted(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    options = StandaloneOptions(CONFIG, data_dir)
    moments = await lived(data_dir)
    files = dict(moments[-1].files)
    log = bytearray(files["-wal"])
    log[len(log) // 2] ^= 1
    put_back(data_dir, {**files, "-wal": bytes(log)})
    said = await known(data_dir)
    assert f"{METADATA_FILE}-wal has " in said
    assert "--accept-metadata-loss" in said
    damage, saved, kept, skipped = await accept_metadata_loss(options)
    assert f"{METADATA_FILE}-wal has " in damage
    assert saved.endswith(" nodes of the metadata were saved")
    assert kept.endswith(f"{METADATA_FILE}.damaged-1")
    assert f" to {LEDGERS - 1} are unknown" in skipped
    async with served(data_dir) as client:
        assert await make_ledger(client) == LEDGERS
        assert 0 in [each async for each in client.ledgers()]


def in_the_place(data_dir: Path, what: bytes | str | None) -> None:
    """Of the metadata's file; a text is a directory with a file of that name."""
    put_back(data_dir, {} if isinstance(what, str | None) else {"": what})
    if isinstance(what, str):
        (data_dir / METADATA_FILE).mkdir()
        (data_dir / METADATA_FILE / what).touch()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (b"", "is empty, while the bookie's data are there"),
        (None, "is gone, while the bookie's data are there"),
        (b"no database at all" * 1000, "is not a database"),
        ("a directory", "is a directory, not a file"),
    ],
)
async def test_metadata_that_are_no_database(
    tmp_path: Path, what: bytes | str | None, said: str
) -> None:
    """Refused without a change; accepted, nothing is known, and no id is used again."""
    data_dir = tmp_path / "data"
    await lived(data_dir)
    in_the_place(data_dir, what)
    for _ in range(2):
        refusal = await known(data_dir)
        assert isinstance(refusal, str)
        assert said in refusal
        assert str(data_dir / METADATA_FILE) in refusal
        assert "--accept-metadata-loss" in refusal
        assert "from one backup" in refusal
        assert refusal.count("\n") == 0
        assert not (data_dir / f"{METADATA_FILE}-wal").exists()
    accepted = await accept_metadata_loss(StandaloneOptions(CONFIG, data_dir))
    assert said in accepted[0]
    assert accepted[-1].startswith(f"ledgers 0 to {LEDGERS - 1} are unknown")
    assert (data_dir / f"{METADATA_FILE}.damaged-1").exists() == (what is not None and what != b"")
    assert await accept_metadata_loss(StandaloneOptions(CONFIG, data_dir)) == []
    async with served(data_dir) as client:
        assert await make_ledger(client) == LEDGERS
        assert [each async for each in client.ledgers()] == [LEDGERS]


@pytest.mark.slow
async def test_damage_within_the_file(tmp_path: Path) -> None:
    """What stands on other pages is saved, and the ids of what doesn't are not used again."""
    data_dir = tmp_path / "data"
    await lived(data_dir)
    store = await open_store(StandaloneOptions(CONFIG, data_dir))
    for number in range(3000):  # the log begins anew
        await store.put(f"/n/{number:04}", b"%04d" % number * 50)
    await store.aclose()
    file = data_dir / METADATA_FILE
    data = bytearray(file.read_bytes())
    data[data.index(b"0123" * 50)] ^= 1
    file.write_bytes(data)
    refusal = await known(data_dir)
    assert isinstance(refusal, str)
    assert f"{file} was changed by something else: 1 of its " in refusal
    assert "; put the whole data directory back from one backup, or go on with what " in refusal
    said = await accept_metadata_loss(StandaloneOptions(CONFIG, data_dir))
    assert said[0] in refusal
    assert len(said) == 3, "no ledger is unknown"
    assert await known(data_dir) == list(range(LEDGERS))
    store = await open_store(StandaloneOptions(CONFIG, data_dir))
    assert 2970 < len(await store.children("/n")) < 3000
    await store.aclose()


async def test_the_counter_of_ids_is_lost(tmp_path: Path) -> None:
    """Ids of ledgers that the bookie has nothing of aren't given out again either."""
    data_dir = tmp_path / "data"
    await lived(data_dir)
    options = StandaloneOptions(CONFIG, data_dir)
    store = await open_store(options)
    assert await LedgerMetadataStore(store).next_ledger_id() == LEDGERS
    await store.put("/ledgers/00/0000/L0009", b"")
    await store.delete("/ledgers/idgen")
    await store.aclose()
    assert await accept_metadata_loss(options) == []
    async with served(data_dir) as client:
        assert await make_ledger(client) == 10


@pytest.mark.slow
async def test_a_bookie_of_before_is_refused(tmp_path: Path) -> None:
    """If it was started since: the metadata know of a newer journal than it has."""
    data_dir = tmp_path / "data"
    bookie = data_dir / BOOKIE_DIRECTORY
    copies = []
    for life in range(4):
        async with served(data_dir) as client:
            assert await make_ledger(client) == life
        copies.append(shutil.copytree(bookie, tmp_path / f"copy {life}"))
    for life, copy in enumerate(copies):
        shutil.rmtree(bookie)
        shutil.copytree(copy, bookie)
        said = await known(data_dir)
        if life == len(copies) - 1:
            assert said == [0, 1, 2, 3]
            continue
        assert isinstance(said, str)
        assert f"{bookie} is older than {data_dir / METADATA_FILE}: its newest journal is" in said
        assert "--accept-metadata-loss" in said
        assert await known(data_dir) == said, "again and again"
    shutil.rmtree(bookie)
    shutil.copytree(copies[1], bookie)
    options = StandaloneOptions(CONFIG, data_dir)
    (said,) = await accept_metadata_loss(options)
    assert said.startswith("the bookie's data are those of journal ")
    assert await accept_metadata_loss(options) == []
    async with served(data_dir) as client:
        assert await make_ledger(client) == 4, "no id is used again"


async def test_a_start_on_a_full_disk_notes_nothing(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await lived(data_dir)
    store = await open_store(StandaloneOptions(CONFIG, data_dir))

    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def put(self, *_: object) -> object:
            raise StoreUnavailable("disk is full")

    await DataAge(cast(EmbeddedStore, Full()), data_dir).started(1000)
    await store.aclose()
    assert await known(data_dir) == list(range(LEDGERS))


async def test_acceptance_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataDirUnusable, match="is not there"):
        await accept_metadata_loss(StandaloneOptions(CONFIG, tmp_path / "none"))
    assert not await trio.Path(tmp_path / "none").exists()


async def test_a_kill_is_no_loss(tmp_path: Path) -> None:
    """Nor is a loss of power, with the id of a ledger given out that took no entry."""
    data_dir = tmp_path / "data"
    await lived(data_dir)
    store = await open_store(StandaloneOptions(CONFIG, data_dir))
    await LedgerMetadataStore(store).next_ledger_id()
    await store.aclose()
    assert await known(data_dir) == list(range(LEDGERS))
    log = trio.Path(data_dir / f"{METADATA_FILE}-wal")
    size = len(await log.read_bytes())
    store = await open_store(StandaloneOptions(CONFIG, data_dir))
    await store.put("/torn", b"")
    await store.aclose()
    data = await log.read_bytes()
    if len(data) > size:
        await log.write_bytes(data[: size + 100])
    (data_dir / f"{METADATA_FILE}-shm").unlink()
    assert await known(data_dir) == list(range(LEDGERS))

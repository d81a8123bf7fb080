"""An index that could not be written works again when it can (BK-04, BK-10)."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from geminga_bookie.storage import location_index
from geminga_bookie.storage.key_value import RocksStores
from geminga_bookie.storage.location_index import IndexFailed, Location, LocationIndex

KEPT = [Location(1, first, 1, first, 5, 1) for first in range(3)]
MORE = [Location(2, first, 1, first, 5, 1) for first in range(5000)]


@contextmanager
def _no_room() -> Iterator[None]:
    """No file can grow, which has the same effect in RocksDB as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def index(tmp_path: Path) -> LocationIndex:
    """One that could not be written."""
    index = LocationIndex(tmp_path / "index")
    index.write(KEPT, completes=True)
    with _no_room(), pytest.raises(IndexFailed):
        index.write(MORE)
    return index


def test_it_is_written_again_without_a_restart(index: LocationIndex, tmp_path: Path) -> None:
    assert list(index.locations(1)) == KEPT, "it is read all the time"
    index.write(MORE)
    assert list(index.locations(1)) == KEPT
    assert list(index.locations(2)) == MORE
    assert index.is_complete()
    index.close()
    index = LocationIndex(tmp_path / "index")
    assert list(index.locations(2)) == MORE
    index.close()


@pytest.mark.parametrize("change", ["delete_ledgers", "clear_locations", "require_rebuild"])
def test_every_change_is_possible_again(index: LocationIndex, change: str) -> None:
    getattr(index, change)(*([[1]] if change == "delete_ledgers" else []))
    assert index.is_complete() == (change != "require_rebuild")
    assert list(index.locations(1)) == (KEPT if change == "require_rebuild" else [])
    index.close()


def test_it_stays_open_for_readers_until_there_is_room(
    index: LocationIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(RocksStores, "free_bytes", lambda _stores, _path: 0)
        with pytest.raises(IndexFailed) as failed:
            index.write(MORE)
        assert failed.value.errno == errno.ENOSPC
        assert list(index.locations(1)) == KEPT
    index.write(MORE)
    assert list(index.locations(2)) == MORE
    index.close()


def test_an_active_read_only_delays_the_reopening(
    index: LocationIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location_index, "REOPEN_S", 0.05)
    reading = index.locations(1)
    assert next(reading) == KEPT[0]
    with pytest.raises(IndexFailed):
        index.write(MORE)
    assert list(reading) == KEPT[1:]
    del reading
    index.write(MORE)
    assert list(index.locations(1)) == KEPT
    index.close()


def test_a_failed_reopening_is_logged(
    index: LocationIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_index: LocationIndex) -> NoReturn:
        raise Exception("no")

    monkeypatch.setattr(location_index, "REOPEN_S", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(LocationIndex, "_open", refuse)
        with pytest.raises(IndexFailed):
            index.write(MORE)
        with pytest.raises(IndexFailed):
            list(index.locations(1))
        with pytest.raises(IndexFailed):
            index.ledger(1)
    index.write(MORE)
    assert list(index.locations(1)) == KEPT
    index.close()


def test_closing_it_raises_nothing(index: LocationIndex) -> None:
    index.close()
    index.close()


def test_a_full_disk_has_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a start takes room from the ballast."""
    index = LocationIndex(tmp_path / "index")
    whole = index._db

    class Full:
        """RocksDB on a full disk."""

        def write(self, *_: object, sync: bool) -> NoReturn:
            raise Exception("IO error: No space left on device: While appending to file: x")

    index._db = Full()  # type: ignore[assignment]
    with pytest.raises(IndexFailed) as failed:
        index.write(KEPT)
    assert failed.value.errno == errno.ENOSPC
    index._db = whole
    index.close()

"""RocksDB and its twin on the simulated disk do the same, and a batch is synced if it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie.storage import key_value
from geminga_bookie.storage.key_value import Batch, Cursor, KeyValueStore, RocksStores
from geminga_bookie.storage.location_index import LedgerRecord, Location, LocationIndex

Change = Callable[[Batch], None]
KEYS = st.binary(min_size=1, max_size=2)
CHANGES = st.lists(
    st.one_of(
        st.builds(partial, st.just(Batch.put), key=KEYS, value=st.binary(max_size=3)),
        st.builds(partial, st.just(Batch.delete), key=KEYS),
        st.lists(KEYS, min_size=2, max_size=2, unique=True).map(
            lambda ends: partial(Batch.delete_range, first=min(ends), end=max(ends))
        ),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Each call a new one."""
    return lambda: tmp_path_factory.mktemp("store")


def walk(cursor: Cursor, step: Callable[[], None]) -> Iterator[tuple[bytes, bytes]]:
    while cursor.valid():
        yield cursor.key(), cursor.value()
        step()
    cursor.status()


@settings(max_examples=25)
@given(batches=st.lists(CHANGES, max_size=4), probe=KEYS)
def test_both_stores_do_the_same(
    directories: Callable[[], Path], batches: list[list[Change]], probe: bytes
) -> None:
    sim = SimDisk()
    sim.make_directory(Path("/d"))
    rocks = RocksStores().open(directories() / "index")
    stores: list[KeyValueStore] = [rocks, SimStores(sim).open(Path("/d/index"))]
    views = []
    for store in stores:
        for changes in batches:
            batch = Batch()
            for change in changes:
                change(batch)
            store.write(batch, sync=False)
        up, down = store.cursor(), store.cursor()
        up.seek(probe)
        down.seek_for_prev(probe)
        views.append((store.get(probe), list(walk(up, up.next)), list(walk(down, down.prev))))
        del up, down
    assert views[0] == views[1]
    rocks.close()
    rocks.close()


def test_what_must_be_synced_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change of the index, down to RocksDB's own flag."""
    synced: list[bool] = []

    real = key_value.Rdict

    class Watched:
        """RocksDB whose writes are noted."""

        def __init__(self, path: str, options: object, access_type: object) -> None:
            self._db = real(path, options, access_type=access_type)
            self.get, self.iter, self.close = self._db.get, self._db.iter, self._db.close

        def write(self, batch: object, options: key_value.WriteOptions) -> None:
            synced.append(options.sync)
            self._db.write(batch, options)

    monkeypatch.setattr(key_value, "Rdict", Watched)
    index = LocationIndex(tmp_path / "index")
    index.write([Location(1, 0, 1, 0, 5, 1)], [LedgerRecord(1, b"", False, False, b"")])
    index.write(completes=True)
    index.delete_ledgers([1])
    index.clear_locations()
    index.require_rebuild()
    assert synced == [True] * 5
    index._db.write(Batch(), sync=False)
    assert synced[-1] is False
    index.close()

"""The simulated disk itself: against a simple model, and what it must forget."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from geminga_bookie._tests.sim_disk import Off, SimDisk
from geminga_bookie._tests.sim_nodes import PAGE_BYTES, Loss
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie.storage.key_value import Batch
from geminga_runtime.directories import make_durable_directory

ROOT = Path("/d")
NAMES = ["a", "b", "c"]
PAGES = 3


class _File:
    """What the model knows of a file: bytes now, and what each page may be after power is lost."""

    def __init__(self) -> None:
        self.now = b""
        self.pages: dict[int, set[bytes]] = {}
        self.sizes = {0}

    def page(self, data: bytes, page: int) -> bytes:
        return data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES].ljust(PAGE_BYTES, b"\0")

    def changed(self, data: bytes) -> None:
        self.now = data
        self.sizes |= set(range(min(self.sizes), len(data) + 1, 64)) | {len(data)}
        for page in range(PAGES):
            self.pages.setdefault(page, {bytes(PAGE_BYTES)}).add(self.page(data, page))

    def synced(self) -> None:
        self.sizes = {len(self.now)}
        self.pages = {page: {self.page(self.now, page)} for page in range(PAGES)}


class Model(RuleBasedStateMachine):
    """Files in one directory, written, synced, renamed and removed; then power is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, _File] = {}
        self.possible: list[dict[str, _File]] = [{}]
        """Each set of names that may be on the disk, oldest first."""

    @initialize(seed=st.integers(0, 1 << 30))
    def make(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.disk.make_directory(ROOT)
        self.disk.sync_directory(ROOT.parent)

    def _named(self) -> None:
        self.possible.append(dict(self.files))

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        self.disk.open(ROOT / name, create=True)
        if name in self.files:
            self.files[name].sizes.add(0)
            self.files[name].changed(b"")
        else:
            self.files[name] = _File()
            self._named()

    @precondition(lambda self: self.files)
    @rule(data=st.data(), durably=st.booleans(), fill=st.integers(1, 255))
    def write(self, data: st.DataObject, durably: bool, fill: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        first = data.draw(st.integers(0, PAGES - 1))
        count = data.draw(st.integers(1, PAGES - first))
        file, content = self.files[name], bytes([fill]) * (count * PAGE_BYTES)
        now = file.now.ljust(first * PAGE_BYTES, b"\0")
        now = now[: first * PAGE_BYTES] + content + now[(first + count) * PAGE_BYTES :]
        handle = self.disk.open(ROOT / name)
        if durably:
            handle.write_durably([content], first * PAGE_BYTES)
        else:
            handle.write([content], first * PAGE_BYTES)
        file.changed(now)
        if durably:
            end = (first + count) * PAGE_BYTES
            file.sizes = {size for size in file.sizes if size >= end}
            for page in range(first, first + count):
                file.pages[page] = {file.page(now, page)}

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        self.disk.open(ROOT / name).sync()
        self.files[name].synced()

    @precondition(lambda self: self.files)
    @rule(data=st.data(), new_name=st.sampled_from(NAMES))
    def rename(self, data: st.DataObject, new_name: str) -> None:
        source = data.draw(st.sampled_from(sorted(self.files)))
        if source != new_name:
            self.disk.rename(ROOT / source, ROOT / new_name)
            self.files[new_name] = self.files.pop(source)
            self._named()

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.disk.remove(ROOT / name)
        if self.files.pop(name, None) is not None:
            self._named()

    @rule()
    def sync_directory(self) -> None:
        self.disk.sync_directory(ROOT)
        self.possible = [dict(self.files)]

    @rule()
    def kill(self) -> None:
        self.disk.start_after_kill()

    @rule()
    def lose_power(self) -> None:
        self.disk.start_after_power_loss()
        names = self.disk.names(ROOT)
        matching = [each for each in self.possible if sorted(each) == names]
        fitting = [each for each in matching if self._fits(each)]
        assert fitting, f"{names} with these contents can't be"
        self.files = fitting[-1]
        self.possible = [dict(self.files)]
        for name, file in self.files.items():
            file.now = self._content(name)
            file.synced()

    def _content(self, name: str) -> bytes:
        return self.disk.open(ROOT / name).read(PAGES * PAGE_BYTES, 0)

    def _fits(self, files: dict[str, _File]) -> bool:
        for name, file in files.items():
            content = self._content(name)
            if not min(file.sizes) <= len(content) <= max(file.sizes):
                return False
            for page in range(-(-len(content) // PAGE_BYTES)):
                known = file.pages.get(page, {bytes(PAGE_BYTES)})
                length = len(content) - page * PAGE_BYTES
                found = content[page * PAGE_BYTES :][:PAGE_BYTES]
                if found not in {each[:length] for each in known}:
                    return False
        return True

    @invariant()
    def reads_back(self) -> None:
        if hasattr(self, "disk"):
            assert self.disk.names(ROOT) == sorted(self.files)
            for name, file in self.files.items():
                assert self._content(name) == file.now


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)


def disk_with_file(seed: int) -> SimDisk:
    disk = SimDisk(seed)
    disk.make_directory(ROOT)
    disk.sync_directory(ROOT.parent)
    disk.open(ROOT / "f", create=True)
    return disk


def outcomes(seeds: int, content: bytes, *, tears: bool = False) -> set[bytes]:
    """Of a page over another, unsynced, when power is lost."""
    found = set()
    for seed in range(seeds):
        disk = disk_with_file(seed)
        disk.tears = tears
        file = disk.open(ROOT / "f")
        file.write([b"-" * PAGE_BYTES], 0)
        file.sync()
        disk.sync_directory(ROOT)
        file.write([content], 0)
        disk.start_after_power_loss()
        found.add(disk.open(ROOT / "f").read(PAGE_BYTES, 0))
    return found


def test_an_unsynced_page_stays_vanishes_or_tears() -> None:
    old, new = b"-" * PAGE_BYTES, b"+" * PAGE_BYTES
    assert outcomes(50, new) == {old, new}
    torn = outcomes(200, new, tears=True) - {old, new}
    assert torn, "none tears"
    assert all(each.lstrip(b"+").strip(b"-") == b"" for each in torn)


def test_a_synced_file_without_a_synced_name_may_be_gone() -> None:
    gone = set()
    for seed in range(20):
        disk = disk_with_file(seed)
        disk.open(ROOT / "f").sync()
        disk.start_after_power_loss()
        gone.add(disk.names(ROOT) == [])
    assert gone == {True, False}


def test_a_failed_sync_is_not_made_good_by_the_next() -> None:
    lost = set()
    for seed in range(20):
        disk = disk_with_file(seed)
        disk.sync_directory(ROOT)
        file = disk.open(ROOT / "f")
        disk.fault = lambda operation, _path: errno.EIO if operation == "sync" else 0
        with pytest.raises(OSError, match="injected"):
            file.write_durably([b"x" * PAGE_BYTES], 0)
        disk.fault = lambda _operation, _path: 0
        file.sync()
        disk.start_after_power_loss()
        lost.add(disk.open(ROOT / "f").read(1, 0) != b"x")
    assert lost == {True, False}


def test_nothing_is_done_after_the_crash_and_old_handles_are_dead() -> None:
    disk = disk_with_file(1)
    file = disk.open(ROOT / "f")
    disk.crash_at = disk.steps + 1
    with pytest.raises(Off):
        file.write([b"x"], 0)
    with pytest.raises(Off):
        disk.remove(ROOT / "f")
    disk.start_after_kill()
    assert disk.names(ROOT) == ["f"]
    with pytest.raises(Off):
        file.read(1, 0)
    disk.open(ROOT / "f").write([b"y"], 0)


def test_a_full_disk_takes_nothing_more() -> None:
    disk = disk_with_file(1)
    disk.capacity_bytes = 2 * PAGE_BYTES
    file = disk.open(ROOT / "f")
    file.write([b"x" * PAGE_BYTES], 0)
    with pytest.raises(OSError, match="No space") as failed:
        file.write([b"x" * 2 * PAGE_BYTES], PAGE_BYTES)
    assert failed.value.errno == errno.ENOSPC
    file.write([b"y"], 0)
    assert disk.usage(ROOT).free_bytes == PAGE_BYTES


def batch(key: bytes, value: bytes) -> Batch:
    made = Batch()
    made.put(key, value)
    return made


def test_unsynced_batches_vanish_from_the_last_on() -> None:
    found = set()
    for seed in range(40):
        disk = disk_with_file(seed)
        store = SimStores(disk).open(ROOT / "index")
        disk.sync_directory(ROOT)
        store.write(batch(b"a", b"1"), sync=True)
        store.write(batch(b"b", b"2"), sync=False)
        store.write(batch(b"c", b"3"), sync=False)
        disk.start_after_power_loss()
        store = SimStores(disk).open(ROOT / "index")
        found.add(b"".join(key for key in (b"a", b"b", b"c") if store.get(key)))
    assert found == {b"a", b"ab", b"abc"}


def test_a_cursor_sees_its_own_moment() -> None:
    disk = disk_with_file(1)
    store = SimStores(disk).open(ROOT / "index")
    store.write(batch(b"b", b"1"), sync=True)
    cursor = store.cursor()
    gone = Batch()
    gone.delete_range(b"a", b"c")
    gone.put(b"d", b"2")
    store.write(gone, sync=True)
    cursor.seek(b"a")
    assert (cursor.key(), cursor.value()) == (b"b", b"1")
    cursor.next()
    assert not cursor.valid()
    cursor = store.cursor()
    cursor.seek_for_prev(b"z")
    assert cursor.key() == b"d"
    cursor.prev()
    assert not cursor.valid()


@pytest.mark.parametrize("steps", range(5))
def test_a_durable_directory_stays_though_its_maker_was_killed_first(steps: int) -> None:
    """After each step of it; and what is made in an unsynced directory of others."""
    path = Path("/a/b/c")
    disk = SimDisk(0)
    disk.make_directory(Path("/a"))
    disk.crash_at = disk.steps + 1 + steps
    with pytest.raises(Off):
        make_durable_directory(disk, path)
    disk.start_after_kill()
    make_durable_directory(disk, path)
    disk.root.lose(Loss(0.0, 0.0), disk.chance)
    assert disk.names(path.parent) == ["c"]

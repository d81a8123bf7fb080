"""Start-up is recovery: directories, indexes, unfinished compactions, journals, in this order (spec
BK-02).

All of it blocks and runs in a thread. Nothing is taken from a journal directory before everything
that it says is in the caches of the ledger directories again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.host import Host
from geminga_bookie.options import BookieOptions, JournalOptions
from geminga_bookie.port import ids_fit
from geminga_bookie.storage.data_dirs import (
    UNSYNCED_NAME,
    DataDirs,
    index_directory,
    lost_disks,
)
from geminga_bookie.storage.disk import Disk, replace_file
from geminga_bookie.storage.doubt import doubt_logs, is_in_limbo, settle_doubts
from geminga_bookie.storage.entry_logs.compaction import finish_compactions
from geminga_bookie.storage.entry_logs.index_rebuild import (
    Marked,
    begin_rebuild,
    give_way,
    heed_mark,
    let_go,
    open_index,
    rebuild_index,
    remove_mark,
)
from geminga_bookie.storage.health import Health
from geminga_bookie.storage.journal import Journal
from geminga_bookie.storage.journal_files import (
    JournalFiles,
    journal_ids,
    journal_name,
    read_mark,
)
from geminga_bookie.storage.journal_format import (
    ENTRIES,
    EXPLICIT_LAC,
    FENCE,
    IN_DOUBT,
    MASTER_KEY,
    JournalItem,
    JournalPosition,
)
from geminga_bookie.storage.journal_replay import ReplayReport, log_report, replay
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.ledger_table import LedgerTable
from geminga_bookie.storage.location_index import IndexDamaged
from geminga_bookie.workers import Workers
from geminga_runtime.ballast import is_full
from geminga_runtime.directories import make_durable_directory

logger = logging.getLogger(__name__)

START_BYTES = 1024 * 1024
"""Room for opening an index, and for a small journal file."""
SMALL_SEGMENT_BYTES = 128 * 1024


@dataclass(slots=True)
class Storage:
    """An opened bookie's parts."""

    disk: Disk
    workers: Workers
    directories: DataDirs
    stores: list[LedgerDirectory]
    journals: list[Journal]
    table: LedgerTable
    health: Health
    journal_dirs: Sequence[Path]
    syncs_journal: bool = True
    reports: list[ReplayReport] = field(default_factory=list)
    is_empty: bool = False
    """Whether it held no ledger at all when it was opened."""

    def start(self) -> None:
        """Start the journals, each with a new file. Takes room as `open_storage` does. Blocks.
        Raises OSError.
        """
        if not self.syncs_journal:
            for directory in self.journal_dirs:
                self._with_room(partial(replace_file, self.disk, directory / UNSYNCED_NAME, b""))
        for journal in self.journals:
            self._with_room(journal.start)

    def _with_room(self, act: Callable[[], None]) -> None:
        while True:
            try:
                act()
            except OSError as error:
                if not is_full(error) or not self.directories.release_ballast():
                    raise
            else:
                return

    def close(self, clean: bool) -> None:
        """Stop the threads and close the files; nothing is flushed. Blocks.

        `clean` says that everything was, or that nothing was acknowledged, so that nothing is in
        doubt at the next start.
        """
        with ExitStack() as stack:
            stack.callback(self.directories.close)
            for store in self.stores:
                stack.callback(store.close)
            for journal in self.journals:
                journal.stop()
            if clean:
                for directory in self.journal_dirs:
                    self.disk.remove(directory / UNSYNCED_NAME)


def open_storage(
    host: Host,
    options: BookieOptions,
    on_journal_failure: Callable[[int, BookkeeperError], None],
) -> Storage:
    """Open and recover. On a full disk it takes room from the directories' ballast. Raises
    DataDirError, OSError."""
    disk = host.disk
    directories = DataDirs(disk, options)
    try:
        for ballast in directories.ballasts:
            ballast.make_room(START_BYTES)
        health = Health(disk, options, directories.ballasts)
        health.set("disk", health.full())
        new_indexes: set[Path] = set()
        while True:
            try:
                with _giving_way(disk, options, new_indexes):
                    return _open_parts(host, options, directories, health, on_journal_failure)
            except OSError as error:
                if not is_full(error) or not directories.release_ballast():
                    raise
    except BaseException:
        directories.close()
        raise


@contextmanager
def _giving_way(disk: Disk, options: BookieOptions, new_indexes: set[Path]) -> Iterator[None]:
    """Damage that is met within ends it without an error, to be tried again. Raises IndexDamaged,
    OSError."""
    try:
        yield
    except IndexDamaged as error:
        let_go(error)
        if error.directory in new_indexes:
            raise  # neither can it be used, nor made anew
        give_way(disk, _ledger_directory(options, error.directory), error)
        new_indexes.add(error.directory)


def _ledger_directory(options: BookieOptions, index_path: Path) -> Path:
    """Whose index that is."""
    for number, directory in enumerate(options.ledger_dirs):
        if index_directory(options, number) == index_path:
            return directory
    raise AssertionError(f"{index_path} is no index of this bookie")


def _open_parts(
    host: Host,
    options: BookieOptions,
    directories: DataDirs,
    health: Health,
    on_journal_failure: Callable[[int, BookkeeperError], None],
) -> Storage:
    disk, workers = host.disk, host.workers
    stores: list[LedgerDirectory] = []
    journals: list[Journal] = []
    try:
        for number, directory in enumerate(options.ledger_dirs):
            stores.append(open_store(host, number, directory, options))
        reports = []
        recovered = LedgerTable(stores, [_nothing], refusals=health.refusals)
        for directory in options.journal_dirs:
            report = _replay(disk, directory, recovered)
            log_report(report)
            reports.append(report)
        limbo = settle_doubts(disk, options, reports, recovered)
        for number, (directory, report) in enumerate(
            zip(options.journal_dirs, reports, strict=True)
        ):
            mark = read_mark(disk, directory) or _oldest(disk, directory, report)
            settings = _journal_options(disk, directory, options.journal)
            files = JournalFiles(disk, directory, settings, report.next_id, mark, workers)
            on_failure = partial(on_journal_failure, number)
            journals.append(Journal(files, settings, workers, on_failure, report.end))
        submits = [journal.submit for journal in journals]
        table = LedgerTable(stores, submits, limbo=limbo, refusals=health.refusals)
        _take_over(table, recovered)
        is_empty = not table.states and not any(map(_holds_ledgers, stores))
    except BaseException:
        for journal in journals:
            journal.stop()
        for store in stores:
            store.close()
        raise
    return Storage(
        disk, workers, directories, stores, journals, table, health,
        options.journal_dirs, options.journal.sync_data, reports, is_empty,
    )  # fmt: skip


def _holds_ledgers(store: LedgerDirectory) -> bool:
    """Also if the disk doesn't say: what may have ledgers is no new bookie. Raises IndexDamaged."""
    try:
        return store.index.is_damaged or any(True for _ in store.index.ledgers())
    except IndexDamaged:
        raise
    except OSError as error:
        logger.warning("whether the bookie has ledgers can't be read: %s", error)
        return True


def _journal_options(disk: Disk, directory: Path, options: JournalOptions) -> JournalOptions:
    """With little room the first file is a small one: no adds come, and each start needs one."""
    first_bytes = options.first_segment_bytes
    if disk.usage(directory).free_bytes < 2 * first_bytes:
        return replace(options, first_segment_bytes=min(first_bytes, SMALL_SEGMENT_BYTES))
    return options


def open_store(
    host: Host, number: int, directory: Path, options: BookieOptions, *, is_stale: bool = False
) -> LedgerDirectory:
    """Open a ledger directory; an index that is stale, damaged or isn't complete is rebuilt. One
    that is damaged or lacks something stays in use while an entry log can't be read. Blocks. Raises
    DataDirError, OSError.
    """
    index_path = index_directory(options, number)
    make_durable_directory(host.disk, index_path.parent)
    marked = heed_mark(host.disk, directory, index_path)
    is_unsound, is_stale = marked is Marked.DAMAGED, is_stale or marked is Marked.ORDERED
    open_it = partial(_open_store, host, number, directory, options, is_stale=is_stale)
    try:
        store = open_it(is_unsound=is_unsound)
    except IndexDamaged as error:
        let_go(error)
        if is_unsound:
            raise
        is_unsound = not give_way(host.disk, directory, error)
    else:
        store.lacks_something = marked is Marked.LACKING
        return store
    return open_it(is_unsound=is_unsound)


def _open_store(
    host: Host,
    number: int,
    directory: Path,
    options: BookieOptions,
    *,
    is_stale: bool,
    is_unsound: bool = False,
) -> LedgerDirectory:
    disk = host.disk
    index = open_index(disk, host.stores, index_directory(options, number))
    store = LedgerDirectory(disk, directory, index, options, number)
    try:
        store.logs.note_unsalted()
        is_stale = is_stale or bool(lost_disks(disk, options))
        is_whole = index.is_complete() and not is_stale
        if not is_whole:
            begin_rebuild(store.logs, index)
        store.undecided = finish_compactions(store.logs, index if is_whole else None)
        if index.is_damaged and not is_unsound:  # which it goes on after
            raise IndexDamaged(f"index {index.directory}: it is damaged", index.directory)
        if not is_whole:
            if store.logs.ids() or is_stale:
                on_damage, in_doubt = partial(doubt_logs, disk, options), is_in_limbo(disk, options)
                rebuild_index(store.logs, index, on_damage, in_doubt=in_doubt)
            else:
                index.write(completes=True)
            if not is_unsound:
                remove_mark(disk, index.directory)
        index.is_damaged |= is_unsound  # so that nothing is compacted
    except BaseException:
        store.close()
        raise
    return store


def _replay(disk: Disk, directory: Path, table: LedgerTable) -> ReplayReport:
    """Bring a journal into the table. Passes over items that an older version took, although the
    files of the ledger directories have no room for their ids: they could never be flushed."""
    unfit = 0
    full = False
    _make_durable(disk, directory)

    def apply(item: JournalItem) -> None:
        nonlocal unfit, full
        entries = (item.number, len(item.payload)) if item.kind == ENTRIES else ()
        if not ids_fit(item.ledger_id, *entries):
            unfit += 1
            return
        apply_item(table, item)
        store = table.store_of(item.ledger_id)
        if store.is_full and not full:
            full = not _flush_all(table)

    report = replay(disk, directory, apply)
    if unfit:
        logger.error(
            "%s: %d items of the journal have ids that no ledger can have, and are dropped",
            directory,
            unfit,
        )
    return report


def _make_durable(disk: Disk, directory: Path) -> None:
    """Sync the journals. What a killed bookie wrote may be in the system's memory only; from now on
    it is answered from."""
    for journal_id in journal_ids(disk, directory):
        file = disk.open(directory / journal_name(journal_id))
        try:
            file.sync()
        finally:
            file.close()


def apply_item(table: LedgerTable, item: JournalItem) -> None:
    """Replay one item."""
    state = table.restored(item.ledger_id)
    if item.kind == ENTRIES:
        store = state.store
        size = sum(map(len, item.payload))
        store.active.put(item.ledger_id, item.number, item.payload, size)
    elif item.kind == MASTER_KEY:
        state.master_key = item.payload[0]
    elif item.kind == FENCE:
        state.fenced = True
    elif item.kind == IN_DOUBT:
        state.limbo = state.fenced = True
    elif item.kind == EXPLICIT_LAC and item.payload:
        state.explicit(item.payload[0])
    table.touch(state)


def _flush_all(table: LedgerTable) -> bool:
    """Flush what was replayed, without moving the mark: replay is idempotent.

    False on a full disk: what has no room stays in memory. It is no more than the adds that were
    taken before, and those had to have room in the write cache.
    """
    records = table.take_dirty(table.stores)
    whole = True
    for store in table.stores:
        sealed = store.swap(records.get(store, []))
        try:
            store.flush(sealed)
        except OSError as error:
            if not is_full(error):
                raise
            store.active = sealed.cache
            for record in sealed.records:
                table.touch(table.states[record.ledger_id])
            whole = False
        store.flushed()
    return whole


def _take_over(table: LedgerTable, recovered: LedgerTable) -> None:
    """The recovered states, now with their journals."""
    for state in recovered.states.values():
        known = table.restored(state.ledger_id, state.store)
        known.master_key = state.master_key
        known.fenced, known.limbo = state.fenced, state.limbo
        known.explicit(state.explicit_packet)
        table.touch(known)


def _oldest(disk: Disk, directory: Path, report: ReplayReport) -> JournalPosition:
    """Without a mark nothing is behind it."""
    ids = journal_ids(disk, directory)
    return JournalPosition(ids[0] if ids else report.next_id, 0)


def _nothing(_: object) -> None:
    """Replayed items are in a journal already."""

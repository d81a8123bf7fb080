"""Rebuilding and checking the indexes of a stopped bookie (spec BK-11; Apache's
LocationsIndexRebuildOp, LedgersIndexRebuildOp and LocalConsistencyCheckCommand).

Each takes the directories' locks: beside a bookie that runs it is refused, and no bookie starts
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from geminga_bookie.errors import DataDirError
from geminga_bookie.host import Host
from geminga_bookie.lac import NO_LAC, explicit_lac
from geminga_bookie.options import BookieOptions
from geminga_bookie.port import ids_fit
from geminga_bookie.shell.printing import ledger_name
from geminga_bookie.shell.target import ShellFailed
from geminga_bookie.storage.data_dirs import DataDirs, index_directory
from geminga_bookie.storage.entry_logs.files import EntryLogs
from geminga_bookie.storage.entry_logs.format import DamagedBlock
from geminga_bookie.storage.entry_logs.reading import parse_block
from geminga_bookie.storage.journal_format import ENTRIES, JournalItem
from geminga_bookie.storage.journal_replay import replay
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.ledger_table import LedgerTable
from geminga_bookie.storage.location_index import Location, LocationIndex
from geminga_bookie.storage.startup import apply_item, open_store

ERRORS_MAX = 10_000
"""Lines about damage that are printed."""

Say = Callable[[str], None]


@contextmanager
def _locked(host: Host, options: BookieOptions) -> Iterator[None]:
    """Raises ShellFailed, also while a bookie runs."""
    try:
        directories = DataDirs(host.disk, options)
    except DataDirError as error:
        raise ShellFailed(str(error)) from None
    try:
        yield
    except (DataDirError, OSError) as error:
        raise ShellFailed(str(error)) from None
    finally:
        directories.close()


def rebuild_locations(host: Host, options: BookieOptions, say: Say) -> None:
    """Write anew where all entries are, from the entry logs. After a kill at any moment the next
    start of the bookie, or the next rebuild, does it again. Raises ShellFailed.
    """
    say("=== Rebuilding DBStorage locations index ===")
    with _locked(host, options):
        for store in _rebuilt(host, options, say):
            store.close()
    say("-- Done rebuilding DBStorage locations index --")


def _rebuilt(host: Host, options: BookieOptions, say: Say) -> list[LedgerDirectory]:
    """The ledger directories, each with a new index."""
    stores: list[LedgerDirectory] = []
    try:
        for number, directory in enumerate(options.ledger_dirs):
            store = open_store(host, number, directory, options, is_stale=True)
            stores.append(store)
            say(f"Scanned {len(store.logs.ids())} entry logs of {directory}")
    except BaseException:
        for store in stores:
            store.close()
        raise
    return stores


def rebuild_ledgers(
    host: Host, options: BookieOptions, say: Say, ledger_form: str, *, verbose: bool
) -> None:
    """Write anew what is known of each ledger, from entry logs and journals, and fence all of
    them, as Apache's shell does: a fence may have been lost with the index. Keys and LACs that the
    old index still has are kept. Raises ShellFailed.
    """
    say("=== Rebuilding DBStorage ledgers index ===")
    with _locked(host, options):
        stores = _rebuilt(host, options, say)
        try:
            found = _fence_all(host, options, stores)
        finally:
            for store in stores:
                store.close()
    for ledger_id in sorted(found):
        if verbose:
            say(f"Found ledger {ledger_name(ledger_id, ledger_form)}")
    say(f"Scan complete, found {len(found)} ledgers")
    say("-- Done rebuilding DBStorage ledgers index --")


def _fence_all(host: Host, options: BookieOptions, stores: Sequence[LedgerDirectory]) -> set[int]:
    """Returns the ids of all ledgers."""
    table = LedgerTable(stores, [_nothing])

    def take(item: JournalItem) -> None:
        if not ids_fit(item.ledger_id):
            return
        if item.kind == ENTRIES:
            table.restored(item.ledger_id)
        else:
            apply_item(table, item)

    for directory in options.journal_dirs:
        replay(host.disk, directory, take)
    found: set[int] = set()
    for store in stores:
        records = {record.ledger_id: record for record in store.index.ledgers()}
        for state in table.states.values():
            if state.store is store:
                records[state.ledger_id] = state.record()
        store.index.write(records=[record._replace(fenced=True) for record in records.values()])
        found.update(records)
    return found


def _nothing(_: object) -> None:
    """What was replayed is in a journal already."""


def check_consistency(host: Host, options: BookieOptions, say: Say, ledger_form: str) -> bool:
    """Read every entry that the indexes name; returns whether all are whole. Raises ShellFailed."""
    say("=== Performing local consistency check ===")
    errors: list[str] = []
    with _locked(host, options):
        for number, directory in enumerate(options.ledger_dirs):
            logs = EntryLogs(host.disk, directory)
            index = _open_to_read(host, options, number)
            try:
                if logs.ids() and not index.is_complete():
                    raise ShellFailed(
                        f"{index_directory(options, number)} is not complete: rebuild it by "
                        "rebuild-db-ledger-locations-index, or start the bookie"
                    )
                for record in index.ledgers():
                    for location in index.locations(record.ledger_id):
                        errors += _errors_at(logs, location, ledger_form)
            finally:
                logs.close()
                index.close()
    if not errors:
        say("=== Check passed ===")
        return True
    say("=== Check returned errors: ===")
    for line in errors[:ERRORS_MAX]:
        say(line)
    if len(errors) > ERRORS_MAX:
        say(f"{len(errors) - ERRORS_MAX} more")
    return False


def check_ledgers(
    host: Host, options: BookieOptions, say: Say, ledger_form: str, *, verbose: bool
) -> None:
    """Read what the indexes know of each ledger. Raises ShellFailed."""
    say("=== Checking DBStorage ledgers index by running a read scan ===")
    count = 0
    with _locked(host, options):
        for number in range(len(options.ledger_dirs)):
            say(f"Loading ledgers index from {index_directory(options, number)}")
            index = _open_to_read(host, options, number)
            try:
                for record in index.ledgers():
                    count += 1
                    if verbose:
                        name = ledger_name(record.ledger_id, ledger_form)
                        lac = explicit_lac(record.explicit_packet)
                        say(
                            f"Scanned: {count}, ledger: {name}, exists: true, "
                            f"isFenced: {str(record.fenced).lower()}, "
                            f"masterKey: {record.master_key.hex()}, "
                            f"explicitLAC: {'-' if lac == NO_LAC else lac}"
                        )
            finally:
                index.close()
    say(f"Scanned {count} ledgers")
    say("-- Done checking DBStorage ledgers index --")


def _open_to_read(host: Host, options: BookieOptions, number: int) -> LocationIndex:
    path = index_directory(options, number)
    try:
        return LocationIndex(path, read_only=True, stores=host.stores)
    except Exception as error:  # rocksdict raises bare Exceptions
        raise ShellFailed(f"{path} can't be read: {error}") from None


def _errors_at(logs: EntryLogs, location: Location, ledger_form: str) -> Iterator[str]:
    name = ledger_name(location.ledger_id, ledger_form)
    try:
        with logs.reading(location.log_id) as file:
            data = file.read(location.size_bytes, location.offset)
            packets = parse_block(data, 0, location, file.salt)
    except (DamagedBlock, OSError) as error:
        last = location.first + location.entries - 1
        yield f"Ledger {name}, entry {location.first} to {last}: {error}"
        return
    for entry_id, packet in enumerate(packets, location.first):
        if packet is None:
            yield f"Ledger {name}, entry {entry_id}: it fails its checksum"

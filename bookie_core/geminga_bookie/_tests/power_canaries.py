"""Mistakes that crashes in each step must find: each is planted in the product (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from geminga_bookie._tests.planted import planted
from geminga_bookie.storage.checkpoint import Checkpointer
from geminga_bookie.storage.disk import replace_file
from geminga_bookie.storage.entry_logs.compaction import compact_log
from geminga_bookie.storage.entry_logs.files import EntryLogWriter
from geminga_bookie.storage.entry_logs.scrub import scrub_log
from geminga_bookie.storage.journal import Journal
from geminga_bookie.storage.journal_files import JournalFiles
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.location_index import LocationIndex
from geminga_runtime.directories import make_durable_directory

IN_ORDER = """        index.write(locations=new, removed=old)
        logs.remove(log_id)
"""
REMOVED_FIRST = """        logs.remove(log_id)
        index.write(locations=new, removed=old)
"""

NEEDED_ONLY = """            if damaged and index.contains(location):
                yield from _damaged(logs, index, location, damaged)
"""

ALL_DAMAGED = """            for entry_id in damaged:
                yield DamagedEntry(head.ledger_id, entry_id, log_id)
"""

CANARIES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "directory of a small file not synced": partial(
        planted, replace_file, "    disk.sync_directory(path.parent)\n", ""
    ),
    "small file not synced": partial(planted, replace_file, "        file.sync()\n", ""),
    "new directory not synced": partial(
        planted,
        make_durable_directory,
        "    system.make_directory(directory)\n    system.sync_directory(directory.parent)\n",
        "    system.make_directory(directory)\n",
    ),
    "new journal not synced": partial(
        planted, JournalFiles._prepare, "            file.sync()\n", ""
    ),
    "new journal's directory not synced": partial(
        planted,
        JournalFiles._prepare,
        "            self._disk.sync_directory(self._directory)\n",
        "",
    ),
    "journal not synced": partial(
        planted, Journal._write, "segment.file.write_durably(", "segment.file.write("
    ),
    "entry log not synced": partial(planted, EntryLogWriter.sync, "        self._sync()\n", ""),
    "entry log's directory not synced": partial(
        planted,
        LedgerDirectory._write_logs,
        "        self.logs.disk.sync_directory(self.logs.directory)\n",
        "",
    ),
    "sealed entry log not synced": partial(
        planted, EntryLogWriter.seal, "            self._sync()\n", ""
    ),
    "compacted log's directory not synced": partial(
        planted, compact_log, "        logs.disk.sync_directory(logs.directory)\n", ""
    ),
    "index not synced": partial(planted, LocationIndex._write, "sync=True", "sync=False"),
    "old log removed before the index is written": partial(
        planted, compact_log, IN_ORDER, REMOVED_FIRST
    ),
    "mark moved before the flush": partial(
        planted, Checkpointer._flush, "store.flush(sealed)", "pass"
    ),
    "journal kept after a failed sync": partial(
        planted,
        Journal._commit,
        "                self._segment.file.close()\n                self._segment = None\n",
        "                pass\n",
    ),
    "journal used again after a failed sync": partial(
        planted, JournalFiles.spoil, "self._spoiled.add(journal_id)", "pass"
    ),
    "damaged blocks that nobody needs are reported": partial(
        planted, scrub_log, NEEDED_ONLY, ALL_DAMAGED
    ),
    "journal removed before the mark is written": partial(
        planted, JournalFiles.set_mark, "write_mark(self._disk, self._directory, mark)", "pass"
    ),
}

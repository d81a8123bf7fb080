"""Which metrics a bookie tells, under BookKeeper's names (spec BK-13; docs/decisions/0033)."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path

from geminga_bookie.metrics.exposition import MS, Labels, Page
from geminga_bookie.metrics.server import ASIDE, ServerMetrics
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.storage.journal import Journal
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.wire.session_limits import Shared
from geminga_runtime.metrics.distribution import Outcomes

READ_POOL = "BookieReadThreadPool"
_SERVER = "bookkeeper_server"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def metrics(bookie: InProcessBookie, shared: Shared) -> str:
    """For Prometheus: under BookKeeper's names what it has too, as `geminga_...` the rest."""
    server = shared.metrics
    server.settle()
    page = Page(time.monotonic())
    _process(page)
    _requests(page, server)
    _connections(page, shared)
    _bookie(page, bookie, server)
    _read_pool(page, bookie)
    for number, journal in enumerate(bookie.storage.journals):
        _journal(page, journal, {"journalIndex": str(number)})
    for store in bookie.storage.stores:
        _directory(page, store)
    return page.text()


def _process(page: Page) -> None:
    """As Prometheus's clients name them. Without Linux's /proc only what every system has."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    page.counter("process_cpu_seconds", usage.ru_utime + usage.ru_stime, suffix="_total")
    page.gauge("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        open_files = len(os.listdir("/proc/self/fd"))
    except OSError:
        return
    page.gauge("process_start_time_seconds", time.time() - uptime_s + int(fields[19]) / _TICKS)
    page.gauge("process_virtual_memory_bytes", int(fields[20]))
    page.gauge("process_resident_memory_bytes", int(fields[21]) * _PAGE_BYTES)
    page.gauge("process_open_fds", open_files)


def _requests(page: Page, server: ServerMetrics) -> None:
    for name, values in (("ADD_ENTRY", server.adds), ("READ_ENTRY", server.reads)):
        page.times(f"{_SERVER}_{name}_REQUEST", values)
        page.times(f"{_SERVER}_{name}_BLOCKED_WAIT", server.blocked_waits)
        page.gauge(f"{_SERVER}_{name}_BLOCKED", server.blocked)
    page.times(f"{_SERVER}_ADD_ENTRY", server.adds)
    page.times(f"{_SERVER}_READ_ENTRY", server.stored_reads)
    page.gauge(f"{_SERVER}_ADD_ENTRY_IN_PROGRESS", server.adds_in_progress)
    page.gauge(f"{_SERVER}_READ_ENTRY_IN_PROGRESS", server.reads_in_progress)
    page.counter(f"{_SERVER}_ADD_ENTRY_REJECTED", server.adds_rejected)
    page.counter(f"{_SERVER}_READ_ENTRY_REJECTED", server.reads_rejected)
    page.counter(f"{_SERVER}_READ_LAST_ENTRY_NOENTRY_ERROR", server.last_entry_missing)
    for name in ASIDE:
        page.times(f"{_SERVER}_{name}_REQUEST", server.aside[name])
        read = name.startswith("READ_ENTRY_")
        page.times(f"{_SERVER}_{name}{'_READ' if read else ''}", server.aside[name])


def _connections(page: Page, shared: Shared) -> None:
    answers = Outcomes()
    answers.failed.count = shared.answers.dropped
    page.summary(f"{_SERVER}_CHANNEL_WRITE", answers)
    page.gauge("geminga_bookie_unfinished_frame_bytes", shared.frames.bytes)
    page.gauge("geminga_bookie_waiting_reads", shared.waits.count)
    page.gauge("geminga_bookie_waiting_answer_bytes", shared.answers.bytes)
    page.counter("geminga_bookie_closed_slow_clients", shared.answers.closed)


def _bookie(page: Page, bookie: InProcessBookie, server: ServerMetrics) -> None:
    statistics, storage = bookie.statistics(), bookie.storage
    page.gauge("bookie_SERVER_STATUS", int(not statistics.read_only))
    page.gauge("bookie_ledger_num_dirs", len(storage.stores))
    page.gauge("bookie_ledger_writable_dirs", _writable_dirs(bookie))
    page.gauge("bookie_JOURNAL_DIRS", len(storage.journals))
    page.times("bookie_BOOKIE_ADD_ENTRY", server.adds)
    page.times("bookie_BOOKIE_RECOVERY_ADD_ENTRY", server.recovery_adds)
    page.times("bookie_BOOKIE_READ_ENTRY", server.stored_reads)
    listed = server.aside["GET_LIST_OF_ENTRIES_OF_LEDGER"]
    page.times("bookie_BOOKIE_GET_LIST_OF_ENTRIES_OF_LEDGER", listed)
    forced = server.aside["FORCE_LEDGER"]
    page.counter("bookie_BOOKIE_FORCE_LEDGER", forced.succeeded.count + forced.failed.count)
    page.summary("bookie_BOOKIE_ADD_ENTRY_BYTES", server.add_bytes)
    page.summary("bookie_BOOKIE_READ_ENTRY_BYTES", server.read_bytes)
    page.counter("bookie_WRITE_BYTES", server.bytes_written)
    page.counter("bookie_READ_BYTES", server.bytes_read)
    page.gauge("bookie_write_cache_max_size", bookie.write_cache_bytes_max)
    page.gauge("bookie_readahead_max_batch_size", storage.stores[0].ahead_entries_max)
    throttle = bookie.throttle
    page.counter("bookie_throttled_write_requests", throttle.metrics.deferred)
    page.counter("bookie_rejected_write_requests", throttle.rejected)
    page.times("bookie_throttled_write", throttle.metrics.waits)
    page.gauge("geminga_bookie_waiting_adds", len(throttle))
    page.counter("geminga_bookie_checkpoints", statistics.checkpoints)
    flushes = [store.metrics.flushes for store in storage.stores]
    spent_s = sum(each.succeeded.sum + each.failed.sum for each in flushes)
    page.counter("bookie_sync_thread_time", int(spent_s * MS))


def _writable_dirs(bookie: InProcessBookie) -> int:
    if bookie.health.error is not None:
        return 0
    return len(bookie.storage.stores) - len(bookie.health.refusals.stores)


def _read_pool(page: Page, bookie: InProcessBookie) -> None:
    reader = bookie.reader
    pool, name = reader.metrics, f"{_SERVER}_{READ_POOL}"
    threads = {"thread": f"{READ_POOL}-0"}
    page.gauge(f"{name}_threads", reader.threads)
    page.gauge(f"{name}_max_queue_size", reader.waiting_max)
    page.times(f"{name}_task_queued", pool.queued)
    page.times(f"{name}_task_execution", pool.runs)
    page.times(f"{_SERVER}_READ_ENTRY_SCHEDULING_DELAY", pool.queued)
    executor = f"{_SERVER}_thread_executor"
    page.gauge(f"{executor}_queue", reader.waiting, threads)
    done = pool.runs.succeeded.count + pool.runs.failed.count
    page.gauge(f"{executor}_completed", done, threads)
    page.gauge(f"{executor}_tasks_completed", done, threads)
    page.gauge(f"{executor}_tasks_rejected", pool.rejected, threads)
    page.gauge(f"{executor}_tasks_failed", pool.runs.failed.count, threads)


def _journal(page: Page, journal: Journal, labels: Labels) -> None:
    counts, values = journal.statistics(), journal.metrics
    name = "bookie_journal_JOURNAL"
    page.times(f"{name}_ADD_ENTRY", values.adds, labels)
    page.times(f"{name}_FORCE_LEDGER", values.forces, labels)
    page.times(f"{name}_SYNC", values.syncs, labels)
    page.times(f"{name}_FLUSH_LATENCY", values.flushes, labels)
    page.times(f"{name}_CREATION_LATENCY", values.creations, labels)
    page.times(f"{name}_QUEUE_LATENCY", values.waits, labels)
    page.times(f"{name}_PROCESS_TIME_LATENCY", values.processing, labels)
    page.summary(f"{name}_FORCE_WRITE_GROUPING_TOTAL", values.runs, labels)
    page.summary(f"{name}_FORCE_WRITE_BATCH_ENTRIES", values.batch_entries, labels)
    page.summary(f"{name}_FORCE_WRITE_BATCH_BYTES", values.batch_bytes, labels)
    page.counter(f"{name}_QUEUE_SIZE", counts.queued, labels)
    page.counter(f"{name}_FORCE_WRITE_QUEUE_SIZE", int(values.is_writing), labels)
    page.counter(f"{name}_NUM_FLUSH_EMPTY_QUEUE", values.ended_empty, labels)
    page.counter(f"{name}_NUM_FLUSH_MAX_OUTSTANDING_BYTES", values.ended_full, labels)
    page.counter(f"{name}_NUM_FLUSH_MAX_WAIT", values.ended_late, labels)
    page.counter(f"{name}_WRITE_BYTES", counts.bytes, labels)
    page.counter("bookie_journal_callback_time", int(values.callback_s * MS), labels)
    page.counter("geminga_bookie_journal_groups", counts.groups, labels)
    page.counter("geminga_bookie_journal_entries", counts.entries, labels)
    page.gauge("geminga_bookie_journal_last_sync_seconds", counts.sync_s, labels)


def _directory(page: Page, store: LedgerDirectory) -> None:
    values, directory = store.metrics, str(store.logs.directory)
    labels = {"indexDir": directory, "ledgerDir": directory}
    page.times("bookie_flush", values.flushes, labels)
    page.times("bookie_flush_entrylog", values.log_flushes, labels)
    page.times("bookie_flush_locations_index", values.index_flushes, labels)
    page.times("bookie_flush_ledger_index", values.index_flushes, labels)
    page.summary("bookie_flush_size", values.flush_bytes, labels)
    page.times("bookie_read_entry", values.loads, labels)
    page.times("bookie_lookup_entry_location", values.lookups, labels)
    loaded_s, looked_up_s = (
        each.succeeded.sum + each.failed.sum for each in (values.loads, values.lookups)
    )
    page.counter("bookie_read_entrylog_time", int(loaded_s * MS), labels)
    page.counter("bookie_read_locations_index_time", int(looked_up_s * MS), labels)
    page.summary("bookie_readahead_batch_count", values.ahead_entries, labels)
    page.summary("bookie_readahead_batch_size", values.ahead_bytes, labels)
    page.times("bookie_THREAD_RUNTIME", values.collections, labels)
    page.counter("bookie_write_cache_hits", values.write_cache_hits, labels)
    page.counter("bookie_write_cache_misses", values.write_cache_misses, labels)
    page.counter("bookie_read_cache_hits", values.read_cache_hits, labels)
    page.counter("bookie_read_cache_misses", values.read_cache_misses, labels)
    sealed = store.sealed
    page.gauge(
        "bookie_write_cache_size",
        store.active.size_bytes + (0 if sealed is None else sealed.cache.size_bytes),
        labels,
    )
    page.gauge("bookie_read_cache_size", store.read_cache.size_bytes, labels)
    page.gauge("bookie_ACTIVE_ENTRY_LOG_TOTAL", values.logs, labels)
    page.gauge("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", values.log_bytes, labels)
    page.gauge("bookie_ACTIVE_LEDGER_TOTAL", values.ledgers, labels)
    page.gauge("bookie_ledgers_count", values.ledgers, labels)
    page.counter("bookie_MINOR_COMPACTION_TOTAL", values.minor_compactions, labels)
    page.counter("bookie_MAJOR_COMPACTION_TOTAL", values.major_compactions, labels)
    page.counter("bookie_DELETED_LEDGER_TOTAL", values.deleted_ledgers, labels)
    page.counter("bookie_RECLAIMED_DELETION_SPACE_BYTES", values.deleted_bytes, labels)
    page.counter("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", values.compacted_bytes, labels)
    page.counter("bookie_RECLAIM_FAILED_TO_DELETE", values.undeleted_logs, labels)
    usage = store.logs.disk.usage(store.logs.directory)
    named = re.sub(r"[^a-zA-Z0-9_]", "_", directory)
    page.gauge(f"bookie_ledger_dir_{named}_usage", 100 * usage.used_share)

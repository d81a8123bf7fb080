"""Mistakes that the simulation must find: each is planted in the product's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from geminga_bookie._tests import power_canaries
from geminga_bookie._tests.planted import planted
from geminga_bookie.autorecovery.repair import Repairer
from geminga_bookie.client import confirmed, ensemble_change, ledger_recovery, placement
from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.client.ledger_recovery import _Recovery
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.client.quorum import Acked, Quorums
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.client.replicas import Replicas
from geminga_bookie.integrity.check import DataCheck
from geminga_bookie.storage import data_dirs, startup
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.storage.ledger_table import LedgerRuntime, LedgerTable
from geminga_bookie.storage.reader import Reader

from .run import run_seed

Canary = Callable[[], AbstractContextManager[None]]


def _plant(function: Callable[..., object], old: str, new: str) -> Canary:
    return partial(planted, function, old, new)


@contextmanager
def _all_of(*canaries: Canary) -> Iterator[None]:
    with ExitStack() as stack:
        for each in canaries:
            stack.enter_context(each())
        yield


CANARIES: dict[str, Canary] = {
    # ---- writing ----
    "ack quorum of one less": _plant(
        Quorums.confirmed_end, "sorted(acked_to)[-self.ack]", "sorted(acked_to)[1 - self.ack]"
    ),
    "ack quorum of one less in stripes": _plant(
        Quorums.confirmed_end, "sorted(members)[-self.ack]", "sorted(members)[1 - self.ack]"
    ),
    "confirmed beyond a gap": _plant(
        Acked.add,
        "                self._beyond[first] = max(end, self._beyond.get(first, end))\n"
        "            return False\n",
        "                self.to = self._quorums.next_of(self._place, end)\n"
        "            return True\n",
    ),
    "LAC ahead": _plant(
        LedgerWriter.append,
        "first, self.last_add_confirmed, self._pushed_length",
        "first, self.last_add_pushed, self._pushed_length",
    ),
    "a fenced writer takes another bookie": partial(
        _all_of,
        _plant(LedgerWriter._bookie_failed, "isinstance(error, _GIVES_UP)", "False"),
        _plant(ensemble_change._is_ours, "found.state is LedgerState.OPEN\n        and ", ""),
    ),
    "a writer's close at what was pushed": _plant(
        LedgerWriter.close,
        "self._known.closed(self.last_add_confirmed, self.length)",
        "self._known.closed(self.last_add_pushed, self._pushed_length)",
    ),
    "a writer's close takes any end": _plant(
        LedgerWriter._check_end,
        "(found.last_entry_id, found.length) == end",
        "(found.last_entry_id, found.length) != ()",
    ),
    # ---- changes of the ensemble ----
    "a change drops the unconfirmed": _plant(
        LedgerWriter._begin_fragment,
        "            self._replicas.begin(replica, runs)\n",
        "            replica.acked.to = replica.acked._quorums.next_of(\n"
        "                replica.place, self.last_add_pushed + 1\n"
        "            )\n"
        "            self._replicas.begin(replica, [])\n",
    ),
    "confirmed before a change is durable": _plant(
        LedgerWriter._replace_failed, "self._is_changing = True", "self._is_changing = False"
    ),
    "a change overwrites the fragment": _plant(
        placement.change_ensemble, "max(lac + 1, last): after", "last: after"
    ),
    "a change begins too early": _plant(
        placement.change_ensemble, "max(lac + 1, last): after", "max(lac, last): after"
    ),
    "compare-and-set ignored": _plant(
        LedgerMetadataStore.update, "encode(changed), known.version", "encode(changed), None"
    ),
    "a change without an answer counts as made": _plant(
        ensemble_change.write_change,
        "            tried.append(wanted)\n",
        "            return VersionedMetadata(wanted, known.version + 1)\n",
    ),
    "a change of another's is taken over": _plant(
        ensemble_change.write_change,
        "if not _is_ours(found.metadata, known.metadata):",
        "if False:",
    ),
    "a new bookie counts for what the one before it had": _plant(
        Replicas.change, "Acked(self._quorums, place, first)", "self._members[place].acked"
    ),
    # ---- recovery ----
    "recovery ends at the first without the entry": _plant(
        _Recovery._found_run, "metadata.write_quorum - metadata.ack_quorum + 1", "1"
    ),
    "recovery takes failures for missing entries": _plant(
        _Recovery._found_run, "except (NoSuchEntry, NoSuchLedger):", "except BookkeeperError:"
    ),
    "recovery counts bookies that are not fenced": _plant(
        _Recovery._found_run, "if bookie_id not in self._fenced:", "if False:"
    ),
    "recovery fences too few": partial(
        _all_of,
        _plant(
            placement.covers_every_ack_quorum,
            "needed = write_quorum - ack_quorum + 1",
            "needed = 1",
        ),
        _plant(_Recovery._found_run, "if bookie_id not in self._fenced:", "if False:"),
    ),
    "recovery fences the first fragment": partial(
        _all_of,
        _plant(
            _Recovery._fence,
            "metadata.ensembles[max(metadata.ensembles)]",
            "metadata.ensembles[0]",
        ),
        _plant(_Recovery._found_run, "if bookie_id not in self._fenced:", "if False:"),
    ),
    "recovery doesn't fence": _plant(
        _Recovery._fence_one,
        "partial(port.fence, ledger_id, self._master_key)",
        "partial(port.read_lac, ledger_id)",
    ),
    "recovery ends with the first run": _plant(
        _Recovery.run,
        "            is_whole = len(run) == asked",
        "            break\n            is_whole = len(run) == asked",
    ),
    "recovery forgets its new bookies": _plant(
        _Recovery.run, "return replace(self._changed,", "return replace(self._metadata,"
    ),
    "recovery writes nothing again": _plant(
        _Recovery._write_again, "        written: set[int] = set()\n", "        return\n"
    ),
    "recovery writes to the wrong bookies": _plant(
        _Recovery._write_to, "quorums.runs(place, ", "quorums.runs(place + 1, "
    ),
    "recovery counts bookies that failed": _plant(
        _Recovery._write_again,
        "place for place in now if ensemble[place] not in self._failed",
        "now",
    ),
    "recovery needs no ack quorum": _plant(
        _Recovery._has_ack_quorums, "return all(", "return True or all("
    ),
    "recovery reads where it writes": _plant(
        _Recovery._found_run,
        "ensemble_of(metadata.ensembles, first)",
        "ensemble_of(self._changed.ensembles, first)",
    ),
    "recovery closes one entry early": _plant(
        _Recovery.run, "last_entry_id=at - 1,", "last_entry_id=max(at - 2, -1),"
    ),
    "recovery takes its own end after a conflict": _plant(
        ledger_recovery.recover,
        "            known = await store.read(known.metadata.ledger_id)\n",
        "            known = await store.read(known.metadata.ledger_id)\n"
        "            if known.metadata.state is LedgerState.CLOSED and 'closed' in locals():\n"
        "                known = VersionedMetadata(closed, known.version)\n",
    ),
    # ---- reading ----
    "a reader trusts the last entry of a bookie": _plant(
        confirmed.confirmed_in,
        "lac = digest.confirmed_in(ledger_id, answer.last_packet)",
        'lac = int.from_bytes(answer.last_packet[8:16], "big")',
    ),
    "a closed ledger's end is asked of bookies": _plant(
        LedgerReader._take, "self.last_add_confirmed = metadata.last_entry_id", "pass"
    ),
    # ---- bookies ----
    "a fence is answered before it is durable": _plant(
        InProcessBookie.fence,
        "await self._journaled(state, FENCE, 0)",
        "state.submit(Request(FENCE, ledger_id, 0))",
    ),
    "a fence is not kept": partial(
        _all_of,
        _plant(startup.apply_item, "item.kind == FENCE", "item.kind == -1"),
        _plant(
            LedgerRuntime.record,
            "self.master_key, self.fenced, self.limbo",
            "self.master_key, False, self.limbo",
        ),
    ),
    "a fence refuses nothing": _plant(InProcessBookie._insert, "elif state.fenced:", "elif False:"),
    "an empty disk comes back under its id": _plant(
        data_dirs.check_metadata_cookie,
        """f'instanceId: "{instance_id}"' not in""",
        """'instanceId' not in""",
    ),
    "a bookie in doubt denies entries": _plant(
        Reader.why_absent, "if not state.limbo:", "if True:"
    ),
    "a bookie in doubt takes adds": _plant(
        InProcessBookie._insert, "elif state.fenced:", "elif state.fenced and not state.limbo:"
    ),
    "a bookie in doubt takes any ledger for new": _plant(
        LedgerTable.open,
        "self.is_in_limbo and not (fresh and ledger_id > self.doubtful_to)",
        "False",
    ),
    "a bookie in doubt takes a first entry for a new ledger": _plant(
        LedgerTable.open, "(fresh and ledger_id > self.doubtful_to)", "fresh"
    ),
    "a doubt ends at once": _plant(
        DataCheck.check, "trio.current_time() >= self._quiet_at", "True"
    ),
    "a doubt ends while the ledger is open": _plant(
        DataCheck._heal, "if own in open_ensemble(metadata):", "if False:"
    ),
    "a doubt ends before the copies": _plant(
        DataCheck._heal,
        "        if not is_quiet:\n"
        "            return not await self._doubts.knows(ledger_id)\n"
        "        await self._complete(metadata)\n",
        "        await self._doubts.settle(ledger_id)\n"
        "        await self._bookie.checkpointer.checkpoint()\n"
        "        await self._complete(metadata)\n",
    ),
    "a doubt ends without copies": _plant(DataCheck._complete, "if not missing:", "if True:"),
    # ---- auto-recovery ----
    "a worker names bookies that lack copies": _plant(
        Repairer._copy,
        "target\n                )\n                is_copied = False\n                continue",
        "target\n                )\n                is_copied = False",
    ),
    # ---- disks ----
    "a bookie's journal is not synced": power_canaries.CANARIES["journal not synced"],
    "a bookie's mark moves before its flush": power_canaries.CANARIES[
        "mark moved before the flush"
    ],
    "a bookie's index is not synced": power_canaries.CANARIES["index not synced"],
}


def first_seed(name: str, seeds: Iterable[int]) -> int | None:
    """The first seed that finds a mistake."""
    with CANARIES[name]():
        return next((seed for seed in seeds if run_seed(seed).violations), None)


FOUND_BY: dict[str, int] = {
    "ack quorum of one less": 14,
    "a fenced writer takes another bookie": 22,
    "a change without an answer counts as made": 14,
    "LAC ahead": 23,
    "confirmed before a change is durable": 29,
    "a writer's close at what was pushed": 16,
    "compare-and-set ignored": 39,
    "a change of another's is taken over": 39,
    "recovery ends at the first without the entry": 8,
    "recovery takes failures for missing entries": 36,
    "recovery doesn't fence": 21,
    "recovery closes one entry early": 2,
    "a reader trusts the last entry of a bookie": 14,
    "a closed ledger's end is asked of bookies": 6,
    "a new bookie counts for what the one before it had": 29,
    "recovery counts bookies that are not fenced": 39,
    "recovery fences too few": 39,
    "recovery ends with the first run": 3,
    "recovery forgets its new bookies": 172,
    "a fence is answered before it is durable": 239,
    "a bookie in doubt denies entries": 1,
    "a bookie in doubt takes adds": 9,
    "a bookie in doubt takes any ledger for new": 9,
    "a bookie in doubt takes a first entry for a new ledger": 359,
    "a fence refuses nothing": 10,
    "a fence is not kept": 3,
    "a doubt ends at once": 9,
    "a doubt ends while the ledger is open": 219,
    "a doubt ends without copies": 86,
}
"""Those that are looked for in each run of the tests, and the seeds that found them when this was
written."""

HIDDEN_BY: dict[str, str] = {
    "a doubt ends before the copies": "a crash must come between the two; seed 987 did, until"
    " recovery came to ask less, and some 1 500 others don't. `integrity/_tests/test_check.py`"
    " crashes in each step",
}
"""Those that are not looked for, and why."""

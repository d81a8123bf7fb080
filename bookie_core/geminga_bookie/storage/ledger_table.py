"""What is known of ledgers beside entries: keys, fences, LACs (spec BK-04, BK-07). Loop only."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain

from geminga_bookie.errors import (
    NoSuchLedger,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_bookie.lac import explicit_lac
from geminga_bookie.port import check_ledger
from geminga_bookie.storage.health import Refusals
from geminga_bookie.storage.journal import Request
from geminga_bookie.storage.journal_format import IN_DOUBT, MASTER_KEY
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.location_index import LedgerRecord

STATES_BYTES_MAX = 8 * 1024 * 1024
"""States above this size are forgotten, those first that nothing was added to, unless they changed
since the last checkpoint."""
STATE_BYTES = 400
"""Memory of a state beside its key and its explicit LAC's packet."""

Submit = Callable[[Request], None]


class LedgerRuntime:
    """One ledger in memory."""

    __slots__ = (
        "dirty", "explicit_packet", "fenced", "journal", "lac", "ledger_id", "limbo",
        "master_key", "size_bytes", "store", "submit",
    )  # fmt: skip

    def __init__(
        self, record: LedgerRecord, store: LedgerDirectory, journal: int, submit: Submit
    ) -> None:
        self.ledger_id, self.master_key, self.fenced, self.limbo, self.explicit_packet = record
        self.lac = explicit_lac(self.explicit_packet)
        """The highest that came since the ledger was loaded: not more than in its last packet, or
        in that of the explicit one, which hold it on disk."""
        self.store = store
        self.journal = journal
        self.submit = submit
        self.dirty = False
        self.size_bytes = self.measure()
        """Its memory, as the table counts it."""

    def measure(self) -> int:
        """Its memory now."""
        return STATE_BYTES + len(self.master_key) + len(self.explicit_packet)

    def explicit(self, packet: bytes) -> bool:
        """Keep the packet of an explicit LAC if that is higher; returns whether it is."""
        lac = explicit_lac(packet)
        self.lac = max(self.lac, lac)
        if lac <= explicit_lac(self.explicit_packet):
            return False
        self.explicit_packet = packet
        return True

    def record(self) -> LedgerRecord:
        """As it is kept in the index."""
        return LedgerRecord(
            self.ledger_id, self.master_key, self.fenced, self.limbo, self.explicit_packet
        )


class LedgerTable:
    """Ledgers by id, loaded from the index when they are first asked for (`LedgerLoader`).

    A ledger's id names its directory and its journal; one that comes while that takes no writes
    goes to another. So a ledger is looked for in all directories, in the one of its id first.
    """

    def __init__(
        self,
        stores: Sequence[LedgerDirectory],
        submits: Sequence[Submit],
        *,
        limbo: bool = False,
        refusals: Refusals | None = None,
    ) -> None:
        self.stores = stores
        self._refusals = refusals or Refusals()
        self._submits = submits
        self.is_in_limbo = limbo
        """Whether a damaged journal may have held ledgers that are not known here."""
        self.doubtful_to = -1
        """In limbo: the highest id of a ledger that metadata knew when the bookie started."""
        self._dirty: list[LedgerRuntime] = []
        self.states: dict[int, LedgerRuntime] = {}
        self.size_bytes = 0
        """Memory of the states."""
        self._trim_at_bytes = 0
        self.highest_id = max((store.index.last_ledger() for store in stores), default=-1)
        """No ledger with a higher id is known; -1 if there is none."""
        self.pinned: Container[int] = ()
        """Ledgers that stay in memory."""
        self.absent: set[int] = set()
        """Ids that were just looked for in vain."""
        self.deletions = 0
        """Changes when ledgers were deleted: what was read of an index before is out of date."""

    def store_of(self, ledger_id: int) -> LedgerDirectory:
        """The directory that holds a ledger. Raises OSError."""
        state = self.states.get(ledger_id)
        if state is not None:
            return state.store
        found = self.search(ledger_id)
        return self._place(ledger_id) if found is None else found[1]

    def needs_search(self, ledger_id: int) -> bool:
        """Whether the ledger may be in an index, and not in memory."""
        return (
            ledger_id <= self.highest_id
            and ledger_id not in self.states
            and ledger_id not in self.absent
        )

    def search(self, ledger_id: int) -> tuple[LedgerRecord, LedgerDirectory] | None:
        """Read a ledger's record from the indexes. For threads: it blocks. Raises OSError."""
        stores = self.stores
        home = ledger_id % len(stores)
        for store in (*stores[home:], *stores[:home]):
            record = store.index.ledger(ledger_id)
            if record is not None:
                return record, store
        return None

    def _place(self, ledger_id: int) -> LedgerDirectory:
        """Where a ledger that is held nowhere goes."""
        return self.stores[_writable(ledger_id, len(self.stores), self._refusals.stores)]

    def enter(
        self, ledger_id: int, found: tuple[LedgerRecord, LedgerDirectory] | None
    ) -> LedgerRuntime | None:
        """The state of a ledger that was searched, which may have come into memory meanwhile."""
        state = self.states.get(ledger_id)
        if state is None and found is not None:
            state = self._enter(*found)
            if self.size_bytes > self._trim_at_bytes:
                self.trim(keep=ledger_id)
        return state

    def check_known(self, ledger_id: int, state: LedgerRuntime | None) -> LedgerRuntime:
        """Raises NoSuchLedger, or UnknownLedgerState where a damaged journal may have held it."""
        if state is None:
            if self.is_in_limbo:
                raise UnknownLedgerState(f"ledger {ledger_id}: what was stored was damaged")
            raise NoSuchLedger(f"ledger {ledger_id}")
        return state

    def open(self, ledger_id: int, master_key: bytes, *, fresh: bool = False) -> LedgerRuntime:
        """A ledger that is in memory, or a new one, whose key goes to the journal ahead of its
        first entry. The caller has searched it, if it `needs_search`.

        `fresh` says that its writer begins with it now, so that no lost journal can have held any
        of it; one that metadata knew before the bookie started may still have been fenced there. A
        ledger in limbo is fenced too. Raises UnauthorizedAccess, IncorrectParameter.
        """
        check_ledger(ledger_id, master_key)
        state = self.states.get(ledger_id)
        if state is None:
            limbo = self.is_in_limbo and not (fresh and ledger_id > self.doubtful_to)
            state = self._enter(
                LedgerRecord(ledger_id, master_key, limbo, limbo, b""),
                self._place(ledger_id),
            )
            self._submit_key(state)
            if limbo:
                state.submit(Request(IN_DOUBT, ledger_id, 0))
        elif state.master_key != master_key:
            if state.master_key:
                raise UnauthorizedAccess(f"wrong master key for ledger {ledger_id}")
            # Its key was lost, with a damaged journal or index.
            state.master_key = master_key
            self._submit_key(state)
        return state

    def _submit_key(self, state: LedgerRuntime) -> None:
        self.touch(state)
        key = state.master_key
        state.submit(Request(MASTER_KEY, state.ledger_id, 0, [key], len(key)))

    def restored(self, ledger_id: int, store: LedgerDirectory | None = None) -> LedgerRuntime:
        """As `open`, for a replay: an unknown ledger takes the key that comes later, and goes to
        `store` if that is given. Blocks. Raises OSError."""
        state = self.states.get(ledger_id)
        if state is None and self.needs_search(ledger_id):
            found = self.search(ledger_id)
            state = None if found is None else self._enter(*found)
        if state is None:
            record = LedgerRecord(ledger_id, b"", False, self.is_in_limbo, b"")
            state = self._enter(record, store or self._place(ledger_id))
        return state

    def _enter(self, record: LedgerRecord, store: LedgerDirectory) -> LedgerRuntime:
        ledger_id = record.ledger_id
        journal = _writable(ledger_id, len(self._submits), self._refusals.journals)
        state = LedgerRuntime(record, store, journal, self._submits[journal])
        self.states[ledger_id] = state
        self.size_bytes += state.size_bytes
        self.highest_id = max(self.highest_id, ledger_id)
        return state

    def touch(self, state: LedgerRuntime) -> None:
        """Its record must be written with the next flush."""
        grown = state.measure() - state.size_bytes
        state.size_bytes += grown
        if self.states.get(state.ledger_id) is state:
            self.size_bytes += grown
        if not state.dirty:
            state.dirty = True
            self._dirty.append(state)
            grown = state.size_bytes
        state.store.active.record_bytes += grown

    def take_dirty(
        self, stores: Sequence[LedgerDirectory]
    ) -> dict[LedgerDirectory, list[LedgerRecord]]:
        """Records to flush, of ledgers in these directories."""
        taken: dict[LedgerDirectory, list[LedgerRecord]] = {}
        left: list[LedgerRuntime] = []
        for state in self._dirty:
            if self.states.get(state.ledger_id) is not state:
                continue
            if state.store not in stores:
                left.append(state)
                continue
            state.dirty = False
            taken.setdefault(state.store, []).append(state.record())
        self._dirty = left
        return taken

    def trim(self, keep: int = -1) -> None:
        """Forget clean states beyond the bound, but that ledger's."""
        surplus = self.size_bytes - STATES_BYTES_MAX
        if surplus > 0:
            doomed = []
            for ledger_id, state in self.states.items():
                if surplus <= 0:
                    break
                if not self._is_needed(state) and ledger_id != keep:
                    doomed.append(ledger_id)
                    surplus -= state.size_bytes
            self.drop(doomed)
        # A quarter more before the next search: it may find nothing to forget.
        self._trim_at_bytes = max(STATES_BYTES_MAX, self.size_bytes) * 5 // 4

    def _is_needed(self, state: LedgerRuntime) -> bool:
        return (
            state.dirty
            or state.store.sealed is not None
            or state.ledger_id in state.store.active
            or state.ledger_id in self.pinned
        )

    def drop(self, ledger_ids: Iterable[int]) -> None:
        """Forget states."""
        for ledger_id in ledger_ids:
            state = self.states.pop(ledger_id, None)
            if state is not None:
                self.size_bytes -= state.size_bytes

    def deleted(self, ledger_ids: Iterable[int]) -> None:
        """Ledgers are not in the index any more: forget what was read of them meanwhile."""
        self.deletions += 1
        states = map(self.states.get, ledger_ids)
        self.drop([state.ledger_id for state in states if state is not None and not state.dirty])


def _writable(ledger_id: int, count: int, refusing: Container[int]) -> int:
    """The one that the id names, or the next that takes writes."""
    home: int = ledger_id % count
    for number in chain(range(home, count), range(home)):
        if number not in refusing:
            return number
    return home

"""What is known of ledgers beside entries: keys, fences, LACs (spec BK-04, BK-07). Loop only."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import chain

from geminga_bookie.errors import (
    NoSuchLedger,
    StorageFailed,
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

STATES_MAX = 16384
"""More than so many are forgotten after a checkpoint, those first that nothing was added to."""

Submit = Callable[[Request], None]


class LedgerRuntime:
    """One ledger in memory."""

    __slots__ = (
        "dirty", "explicit_packet", "fenced", "journal", "lac", "ledger_id", "limbo",
        "master_key", "store", "submit",
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
    """Ledgers by id, loaded from the index when they are first asked for.

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

    def store_of(self, ledger_id: int) -> LedgerDirectory:
        """The directory that holds a ledger. Raises OSError."""
        state = self.states.get(ledger_id)
        if state is not None:
            return state.store
        found = self._search(ledger_id)
        return self._place(ledger_id) if found is None else found[1]

    def _search(self, ledger_id: int) -> tuple[LedgerRecord, LedgerDirectory] | None:
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

    def find(self, ledger_id: int) -> LedgerRuntime | None:
        """A ledger that the bookie has heard of. Raises StorageFailed, IncorrectParameter."""
        state = self.states.get(ledger_id)
        if state is None:
            check_ledger(ledger_id)
            try:
                found = self._search(ledger_id)
            except OSError as error:
                raise StorageFailed(f"ledger {ledger_id}: {error}") from error
            if found is None:
                return None
            state = self._enter(*found)
        return state

    def known(self, ledger_id: int) -> LedgerRuntime:
        """Raises NoSuchLedger, or UnknownLedgerState where a damaged journal may have held it."""
        state = self.find(ledger_id)
        if state is None:
            if self.is_in_limbo:
                raise UnknownLedgerState(f"ledger {ledger_id}: the journal was damaged")
            raise NoSuchLedger(f"ledger {ledger_id}")
        return state

    def open(self, ledger_id: int, master_key: bytes, *, fresh: bool = False) -> LedgerRuntime:
        """Find or make a ledger; a new one's key goes to the journal ahead of its first entry.

        `fresh` says that its writer begins with it now, so that no lost journal can have held any
        of it; one that metadata knew before the bookie started may still have been fenced there. A
        ledger in limbo is fenced too. Raises UnauthorizedAccess, IncorrectParameter.
        """
        check_ledger(ledger_id, master_key)
        state = self.find(ledger_id)
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
        `store` if that is given."""
        state = self.find(ledger_id)
        if state is None:
            record = LedgerRecord(ledger_id, b"", False, self.is_in_limbo, b"")
            state = self._enter(record, store or self._place(ledger_id))
        return state

    def _enter(self, record: LedgerRecord, store: LedgerDirectory) -> LedgerRuntime:
        ledger_id = record.ledger_id
        journal = _writable(ledger_id, len(self._submits), self._refusals.journals)
        state = LedgerRuntime(record, store, journal, self._submits[journal])
        self.states[ledger_id] = state
        return state

    def touch(self, state: LedgerRuntime) -> None:
        """Its record must be written with the next flush."""
        if not state.dirty:
            state.dirty = True
            self._dirty.append(state)

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

    def trim(self) -> None:
        """Forget clean states beyond the bound."""
        surplus = len(self.states) - STATES_MAX
        if surplus <= 0:
            return
        idle = (
            state.ledger_id
            for state in self.states.values()
            if not state.dirty
            and state.store.sealed is None
            and state.ledger_id not in state.store.active
        )
        for ledger_id in [ledger_id for ledger_id, _ in zip(idle, range(surplus), strict=False)]:
            del self.states[ledger_id]


def _writable(ledger_id: int, count: int, refusing: Container[int]) -> int:
    """The one that the id names, or the next that takes writes."""
    home: int = ledger_id % count
    for number in chain(range(home, count), range(home)):
        if number not in refusing:
            return number
    return home

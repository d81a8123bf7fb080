"""What the bookie knows of each ledger beside entries: key, fence, LACs (spec BK-04, BK-07). Loop
only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga_bookie.errors import (
    NoSuchLedger,
    StorageFailed,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_bookie.lac import NO_LAC
from geminga_bookie.port import check_ledger
from geminga_bookie.storage.journal import Request
from geminga_bookie.storage.journal_format import IN_DOUBT, MASTER_KEY
from geminga_bookie.storage.location_index import LedgerRecord
from geminga_bookie.storage.store import LedgerStore

STATES_MAX = 16384
"""More than so many are forgotten after a checkpoint, those first that nothing was added to."""

Submit = Callable[[Request], None]


class LedgerState:
    """One ledger in memory."""

    __slots__ = (
        "dirty", "explicit_lac", "fenced", "lac", "ledger_id", "limbo", "master_key", "store",
        "submit",
    )  # fmt: skip

    def __init__(self, record: LedgerRecord, store: LedgerStore, submit: Submit) -> None:
        self.ledger_id, self.master_key, self.fenced, self.limbo, self.lac, self.explicit_lac = (
            record
        )
        self.store = store
        self.submit = submit
        self.dirty = False

    @property
    def best_lac(self) -> int:
        return max(self.lac, self.explicit_lac)

    def record(self) -> LedgerRecord:
        """As it is kept in the index."""
        return LedgerRecord(
            self.ledger_id, self.master_key, self.fenced, self.limbo, self.lac, self.explicit_lac
        )


class LedgerTable:
    """Ledgers by id, loaded from the index when they are first asked for."""

    def __init__(
        self, stores: Sequence[LedgerStore], submits: Sequence[Submit], *, limbo: bool = False
    ) -> None:
        self.stores = stores
        self._submits = submits
        self._limbo = limbo
        self.doubtful_to = -1
        """In limbo: the highest id of a ledger that metadata knew when the bookie started."""
        self._dirty: list[LedgerState] = []
        self.states: dict[int, LedgerState] = {}

    def store_of(self, ledger_id: int) -> LedgerStore:
        """The directory that holds a ledger."""
        return self.stores[ledger_id % len(self.stores)]

    def find(self, ledger_id: int) -> LedgerState | None:
        """A ledger that the bookie has heard of. Raises StorageFailed, IncorrectParameter."""
        state = self.states.get(ledger_id)
        if state is None:
            check_ledger(ledger_id)
            store = self.store_of(ledger_id)
            try:
                record = store.index.ledger(ledger_id)
            except OSError as error:
                raise StorageFailed(f"ledger {ledger_id}: {error}") from error
            if record is None:
                return None
            state = self._enter(record, store)
        return state

    @property
    def is_in_limbo(self) -> bool:
        """Whether a damaged journal may have held ledgers that are not known here."""
        return self._limbo

    def known(self, ledger_id: int) -> LedgerState:
        """Raises NoSuchLedger, or UnknownLedgerState where a damaged journal may have held it."""
        state = self.find(ledger_id)
        if state is None:
            if self._limbo:
                raise UnknownLedgerState(f"ledger {ledger_id}: the journal was damaged")
            raise NoSuchLedger(f"ledger {ledger_id}")
        return state

    def open(self, ledger_id: int, master_key: bytes, *, fresh: bool = False) -> LedgerState:
        """Find or make a ledger; a new one's key goes to the journal ahead of its first entry.

        `fresh` says that its writer begins with it now, so that no lost journal can have held any
        of it; one that metadata knew before the bookie started may still have been fenced there. A
        ledger in limbo is fenced too. Raises UnauthorizedAccess, IncorrectParameter.
        """
        check_ledger(ledger_id, master_key)
        state = self.find(ledger_id)
        if state is None:
            limbo = self._limbo and not (fresh and ledger_id > self.doubtful_to)
            state = self._enter(
                LedgerRecord(ledger_id, master_key, limbo, limbo, NO_LAC, NO_LAC),
                self.store_of(ledger_id),
            )
            self._submit_key(state)
            if limbo:
                state.submit((IN_DOUBT, ledger_id, 0, (), 0, None, None))
        elif state.master_key != master_key:
            if state.master_key:
                raise UnauthorizedAccess(f"wrong master key for ledger {ledger_id}")
            # Its key was lost, with a damaged journal or index.
            state.master_key = master_key
            self._submit_key(state)
        return state

    def _submit_key(self, state: LedgerState) -> None:
        self.touch(state)
        key = [state.master_key]
        size = len(state.master_key)
        state.submit((MASTER_KEY, state.ledger_id, 0, key, size, None, None))

    def restored(self, ledger_id: int) -> LedgerState:
        """As `open`, for a replay: an unknown ledger takes the key that comes later."""
        state = self.find(ledger_id)
        if state is None:
            record = LedgerRecord(ledger_id, b"", False, self._limbo, NO_LAC, NO_LAC)
            state = self._enter(record, self.store_of(ledger_id))
        return state

    def _enter(self, record: LedgerRecord, store: LedgerStore) -> LedgerState:
        submit = self._submits[record.ledger_id % len(self._submits)]
        state = self.states[record.ledger_id] = LedgerState(record, store, submit)
        return state

    def touch(self, state: LedgerState) -> None:
        """Its record must be written with the next flush."""
        if not state.dirty:
            state.dirty = True
            self._dirty.append(state)

    def take_dirty(self) -> dict[int, list[LedgerRecord]]:
        """Records to flush, by number of the store."""
        taken: dict[int, list[LedgerRecord]] = {}
        for state in self._dirty:
            state.dirty = False
            if self.states.get(state.ledger_id) is state:
                number = state.ledger_id % len(self.stores)
                taken.setdefault(number, []).append(state.record())
        self._dirty = []
        return taken

    def forget(self, ledger_id: int) -> None:
        """A deleted ledger; what was still to be written of it isn't."""
        self.states.pop(ledger_id, None)

    def trim(self) -> None:
        """Forget clean states beyond the bound."""
        surplus = len(self.states) - STATES_MAX
        if surplus <= 0:
            return
        idle = (
            state.ledger_id
            for state in self.states.values()
            if not state.dirty and state.ledger_id not in state.store.active
        )
        for ledger_id in [ledger_id for ledger_id, _ in zip(idle, range(surplus), strict=False)]:
            del self.states[ledger_id]

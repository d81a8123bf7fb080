"""The bookies that a writer writes to: what each was sent, and what it has (spec BK-20, BK-21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.placement import write_set
from geminga_bookie.client.quorum import Acked, Quorums
from geminga_bookie.errors import BookieUnavailable, BookkeeperError
from geminga_bookie.port import AddDone, BookiePort

AVOIDED_S = 60.0
"""A ledger doesn't try a bookie again for this time after it failed."""

Answered = Callable[["Replica", int, int, BookkeeperError | None], None]
"""(replica, first entry id, count, error): a run's result."""


class Replica:
    """One bookie of the ensemble."""

    __slots__ = ("acked", "bookie_id", "failure", "place")

    def __init__(self, bookie_id: str, place: int, acked: Acked) -> None:
        self.bookie_id = bookie_id
        self.place = place
        self.acked = acked
        self.failure: BookkeeperError | None = None
        """Why it was given up: it is sent nothing more, and its answers count no more."""


class _Sending(NamedTuple):
    """A bookie that new entries go to."""

    replica: Replica
    port: BookiePort
    done: AddDone


class Replicas:
    """The ensemble of an open ledger's last fragment."""

    def __init__(
        self,
        ledger_id: int,
        master_key: bytes,
        quorums: Quorums,
        ensemble: Sequence[str],
        bookies: BookieDirectory,
        answered: Answered,
    ) -> None:
        self._ledger_id = ledger_id
        self._master_key = master_key
        self._quorums = quorums
        self._bookies = bookies
        self._answered = answered
        self._is_striped = quorums.write < quorums.ensemble
        self._members = [
            Replica(bookie_id, place, Acked(quorums, place, 0))
            for place, bookie_id in enumerate(ensemble)
        ]
        self._sending = [
            _Sending(each, bookies.port(each.bookie_id), self._answer_to(each))
            for each in self._members
        ]

        self._given_up: dict[str, float] = {}

    def _answer_to(self, replica: Replica) -> AddDone:
        def done(first: int, count: int, error: BookkeeperError | None) -> None:
            self._answered(replica, first, count, error)

        return done

    @property
    def is_whole(self) -> bool:
        """Whether no bookie of the ensemble was given up."""
        return len(self._sending) == len(self._members)

    def avoided(self) -> set[str]:
        """Ids of the ensemble's bookies that were given up, and of earlier ones, for a while."""
        since = trio.current_time() - AVOIDED_S
        self._given_up = {each: at for each, at in self._given_up.items() if at > since}
        failed = [each.bookie_id for each in self._members if each.failure is not None]
        return {*failed, *self._given_up}

    def send(self, first: int, packets: Sequence[bytes]) -> None:
        """Entries from `first` on, to the bookies of their write sets."""
        for to in self._sending:
            self._send_to(to, first, packets)

    def _send_to(self, to: _Sending, first: int, packets: Sequence[bytes]) -> None:
        replica, port, done = to
        if not self._is_striped:
            port.add(self._ledger_id, self._master_key, first, packets, done)
            return
        for begin, end in self._quorums.runs(replica.place, first, first + len(packets)):
            run = packets[begin - first : end - first]
            port.add(self._ledger_id, self._master_key, begin, run, done)

    def confirmed_end(self, at: int) -> int:
        """The first entry from `at` on that no ack quorum has."""
        members = self._members
        if len(members) == 1:
            return members[0].acked.to
        return self._quorums.confirmed_end([each.acked.to for each in members], at)

    def give_up(self, replica: Replica, error: BookkeeperError) -> None:
        """Send nothing more to a bookie."""
        replica.failure = error
        self._given_up[replica.bookie_id] = trio.current_time()
        self._sending = [to for to in self._sending if to.replica is not replica]

    def can_confirm(self) -> bool:
        """Whether each write set still has an ack quorum of bookies."""
        ensemble, write, ack = self._quorums
        alive = {to.replica.place for to in self._sending}
        return all(
            len(alive.intersection(write_set(start, ensemble, write))) >= ack
            for start in range(ensemble)
        )

    def change(self, ensemble: Sequence[str], first: int) -> list[Replica]:
        """Take the bookies of a new fragment from `first` on; returns those that came in. What the
        others have of it still counts.
        """
        came: list[Replica] = []
        for place, bookie_id in enumerate(ensemble):
            if bookie_id != self._members[place].bookie_id:
                replica = Replica(bookie_id, place, Acked(self._quorums, place, first))
                self._members[place] = replica
                came.append(replica)
        return came

    def begin(self, replica: Replica, runs: Sequence[tuple[int, Sequence[bytes]]]) -> None:
        """Send a bookie that came in what is not confirmed yet, then all that comes."""
        try:
            port = self._bookies.port(replica.bookie_id)
        except BookieUnavailable as error:
            self._answered(replica, 0, 0, error)
            return
        to = _Sending(replica, port, self._answer_to(replica))
        self._sending.append(to)
        for first, packets in runs:
            if replica.failure is None:
                self._send_to(to, first, packets)

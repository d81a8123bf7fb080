"""The write cache (spec BK-03): entries that are in no entry log yet, by ledger, as runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class CachedRun:
    """Consecutive entries of one ledger; the packets are the very objects that were handed in."""

    __slots__ = ("first", "packets")

    def __init__(self, first: int, packets: list[bytes]) -> None:
        self.first = first
        self.packets = packets


class WriteCache:
    """One half, filled by the loop only. Once sealed it changes by `drop` only."""

    def __init__(self) -> None:
        self._ledgers: dict[int, list[CachedRun]] = {}
        self.size_bytes = 0

    def put(self, ledger_id: int, first: int, packets: Sequence[bytes], size_bytes: int) -> None:
        """Add a run. Costs by run, not by entry."""
        self.size_bytes += size_bytes
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            self._ledgers[ledger_id] = [CachedRun(first, list(packets))]
            return
        last = runs[-1]
        if last.first + len(last.packets) == first:
            last.packets.extend(packets)
        else:
            runs.append(CachedRun(first, list(packets)))

    def get(
        self, ledger_id: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> list[bytes] | None:
        """Packets from that entry on within one run, at least one; None if the entry isn't here.

        Of overlapping runs, the youngest counts.
        """
        runs = self._ledgers.get(ledger_id)
        if runs is None:
            return None
        for run in reversed(runs):
            index = entry_id - run.first
            if 0 <= index < len(run.packets):
                return take_bounded(run.packets, index, entries_max, bytes_max)
        return None

    def __iter__(self) -> Iterator[int]:
        """Ids of the ledgers that have entries here."""
        return iter(self._ledgers)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Ids held, in no order, perhaps more than once."""
        for run in self._ledgers.get(ledger_id, ()):
            yield from range(run.first, run.first + len(run.packets))

    def drop(self, ledger_id: int) -> None:
        """Forget a deleted ledger."""
        for run in self._ledgers.pop(ledger_id, ()):
            self.size_bytes -= sum(map(len, run.packets))

    def sorted_runs(self) -> Iterator[tuple[int, CachedRun]]:
        """All runs by ledger and first entry; of equal ones, older before younger."""
        for ledger_id in sorted(self._ledgers):
            for run in sorted(self._ledgers[ledger_id], key=_first_of):
                yield ledger_id, run

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._ledgers

    def __len__(self) -> int:
        return len(self._ledgers)


def _first_of(run: CachedRun) -> int:
    return run.first


def take_bounded(
    packets: Sequence[bytes], index: int, entries_max: int, bytes_max: int
) -> list[bytes]:
    """A slice from `index` on: at least one packet, then up to the bounds."""
    found = list(packets[index : index + max(1, entries_max)])
    size = 0
    for count, length in enumerate(map(len, found)):
        size += length
        if size > bytes_max:
            return found[: max(1, count)]
    return found

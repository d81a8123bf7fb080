"""The chain against a plain list of positions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.log.chain import LedgerChain, LedgerInfo
from geminga_protocol.ids import EARLIEST, LATEST, Position


def pos(ledger_id: int, entry_id: int) -> Position:
    return Position(ledger_id, entry_id)


def chain_of(sizes: list[int]) -> LedgerChain:
    """Ledgers 3, 5, 7, ... with these numbers of entries."""
    chain = LedgerChain()
    for index, entries in enumerate(sizes):
        chain.add(LedgerInfo(3 + 2 * index, entries, 10 * entries, 1))
    return chain


def all_positions(sizes: list[int]) -> list[Position]:
    return [pos(3 + 2 * i, e) for i, n in enumerate(sizes) for e in range(n)]


sizes = st.lists(st.integers(0, 4), min_size=1, max_size=5)
anywhere = st.one_of(
    st.builds(pos, st.integers(0, 14), st.integers(-1, 6)), st.sampled_from([EARLIEST, LATEST])
)


@given(sizes, anywhere, anywhere)
def test_positions_are_those_of_a_plain_list(
    counts: list[int], position: Position, other: Position
) -> None:
    chain = chain_of(counts)
    every = all_positions(counts)
    end = pos(3 + 2 * (len(counts) - 1), counts[-1])
    first = pos(3, -1)
    assert chain.next_position(position) == min((p for p in every if p > position), default=end)
    assert chain.at_or_after(position) == min((p for p in every if p >= position), default=end)
    assert chain.at_or_before(position) == max((p for p in every if p <= position), default=first)
    assert chain.previous_position(position) == max(
        (p for p in every if p < position), default=first
    )
    assert chain.ordinal(position) == sum(p <= position for p in every)
    assert chain.entries_between(position, other) == sum(position < p <= other for p in every)
    assert chain.last_position() == max(every, default=pos(end[0], -1))


@given(sizes, st.data())
def test_trimming_keeps_distances(counts: list[int], data: st.DataObject) -> None:
    chain = chain_of(counts)
    gone = data.draw(st.integers(0, len(counts) - 1))
    for index in range(gone):
        chain.remove(3 + 2 * index)
    kept = [p for p in all_positions(counts) if p[0] >= 3 + 2 * gone]
    assert chain.entries == len(kept)
    assert chain.size_bytes == 10 * len(kept)
    assert chain.entries_between(EARLIEST, LATEST) == len(kept)
    base = chain.ordinal(chain.first_position())
    assert [chain.at_ordinal(base + 1 + n) for n in range(len(kept))] == kept
    assert chain.at_ordinal(base) == chain.first_position()


def test_an_empty_ledger_comes_off_the_end() -> None:
    chain = chain_of([2, 0])
    chain.remove(5)
    chain.add(LedgerInfo(9))
    assert [ledger.ledger_id for ledger in chain] == [3, 9]
    assert chain.next_position(pos(3, 1)) == pos(9, 0)
    assert chain.last_position() == pos(3, 1)

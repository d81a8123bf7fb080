"""Receipts of a run equal the single receipts, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.encode import send_receipt
from geminga_protocol.receipts import joined_receipts, send_receipts

IDS = st.one_of(st.integers(0, 300), st.integers(16_000, 17_000), st.integers(0, 1 << 62))


@given(IDS, IDS, IDS, IDS, st.integers(0, 300), st.sampled_from([0, 1]))
def test_a_run_equals_its_single_receipts(
    producer_id: int, ledger_id: int, sequence_id: int, entry_id: int, count: int, step: int
) -> None:
    pairs = [(sequence_id + n, 0, 9) for n in range(count)]
    expected = [
        send_receipt(producer_id, seq, ledger_id, entry_id + n * step, 0)
        for n, (seq, _, _) in enumerate(pairs)
    ]
    assert send_receipts(producer_id, pairs, ledger_id, entry_id, step) == b"".join(expected)


@given(st.lists(st.tuples(IDS, st.one_of(st.just(0), IDS), st.just(9)), max_size=20))
def test_any_sequence_ids(pairs: list[tuple[int, int, int]]) -> None:
    expected = [
        send_receipt(7, seq, 3, 500 + n, highest) for n, (seq, highest, _) in enumerate(pairs)
    ]
    assert send_receipts(7, pairs, 3, 500) == b"".join(expected)


def test_nothing_stored() -> None:
    expected = send_receipt(1, 1000, -1, -1) * 2
    assert send_receipts(1, [(1000, 0, 9), (1000, 0, 9)], -1, -1, 0) == expected


@given(IDS, IDS, IDS, IDS, st.integers(0, 300))
def test_joined_receipts_are_those_of_a_run(
    producer_id: int, ledger_id: int, sequence_id: int, entry_id: int, count: int
) -> None:
    pairs = [(sequence_id + n, 0, 9) for n in range(count)]
    expected = send_receipts(producer_id, pairs, ledger_id, entry_id)
    assert joined_receipts(producer_id, sequence_id, count, ledger_id, entry_id) == expected

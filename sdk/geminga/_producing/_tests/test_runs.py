"""Processing many messages at once equals processing each."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminga._connection.core import MemoryLimit
from geminga._entries.encode import Encoder
from geminga._producing._tests.desk import NOWHERE, Desk
from geminga._producing.outbox import Outbox
from geminga._producing.receipt import Receipt
from geminga._producing.window import ReceiptVerdict
from geminga.options import ProducerOptions


@given(
    st.lists(st.sampled_from([None, None, None, 3, 9]), max_size=8),
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([7, NOWHERE]), st.integers(1, 4)), max_size=4
    ),
)
@example([None, None, None], [(1, NOWHERE, 1), (0, 7, 3)])
@example([None, None, None], [(0, 7, 2), (2, 7, 1)])
def test_a_run_of_receipts_is_as_each_by_itself(
    numbers: list[int | None], runs: list[tuple[int, int, int]]
) -> None:
    """Also receipts of frames not in flight, and of duplicates."""
    desks = [Desk(batching_enabled=False) for _ in range(2)]
    by_runs, one_by_one = desks
    for desk in desks:
        for number in numbers:
            desk.box.add(b"xy", None, number)
    for first, ledger_id, count in runs:
        told = by_runs.box.on_receipts(first, ledger_id, 50, count)
        for n in range(count):
            expected = one_by_one.box.on_receipt(first + n, ledger_id, 50 + n)
            if expected is ReceiptVerdict.GAP:
                break
        assert told is expected
        states = [
            (
                desk.box.in_flight,
                desk.box.pending_messages,
                desk.box.pending_bytes,
                desk.box.last_sequence_id,
                desk.box._early,
                [(each.sequence_id, each.ledger_id, each.entry_id) for each in desk.settled],
            )
            for desk in desks
        ]
        assert states[0] == states[1]
    assert all(each.is_settled for desk in desks for each in desk.settled)


def test_a_run_of_receipts_that_ends_in_the_middle_of_a_message() -> None:
    """The first chunk's position is part of the message's id."""
    options = ProducerOptions(
        batching_enabled=False, chunking_enabled=True, chunk_max_message_size_bytes=10
    )
    encoder = Encoder(3, "persistent://t/n/t", options, lambda: 42)
    box = Outbox(options, encoder, lambda: 1.0, lambda run, *_: None, MemoryLimit(0))
    box.begin(-1)
    small, large = (box.add(b"x" * size, None, None) for size in (10, 20))
    assert box.on_receipts(0, 7, 50, 2) is ReceiptVerdict.DONE
    assert box.on_receipts(1, 7, 52, 1) is ReceiptVerdict.DONE
    assert small.message_id.entry_id == 50
    assert str(large.message_id.first_chunk) == "7:51:-1"
    assert large.message_id.entry_id == 52
    assert not box.in_flight


def test_all_of_a_run_are_counted_before_the_first_is_told() -> None:
    desk = Desk(batching_enabled=False)
    pending: list[int] = []
    for receipt in desk.add(1, 1, 1):
        receipt.add_done_callback(lambda _: pending.append(desk.box.pending_messages))
    assert desk.box.on_receipts(0, 7, 5, 3) is ReceiptVerdict.DONE
    assert pending == [0, 0, 0]


def test_a_callback_that_is_interrupted_leaves_none_of_its_run_behind() -> None:
    desk = Desk(batching_enabled=False)
    receipts = desk.add(1, 1, 1)

    def interrupted(_: Receipt) -> None:
        raise KeyboardInterrupt

    receipts[0].add_done_callback(interrupted)
    with pytest.raises(KeyboardInterrupt):
        desk.box.on_receipts(0, 7, 5, 3)
    assert all(each.is_done for each in receipts)

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga import errors
from geminga._connection.core import MemoryLimit
from geminga._entries.encode import Encoder, Extras
from geminga._producing._tests.desk import NOWHERE, Desk
from geminga._producing.outbox import Outbox
from geminga._producing.receipt import Outgoing, Receipt
from geminga._producing.window import ReceiptVerdict
from geminga.options import ProducerOptions


def test_batches_by_count_and_bytes() -> None:
    desk = Desk(batching_max_messages=3, batching_max_bytes=100)
    desk.add(1, 1, 1)
    assert desk.sent() == [(0, 2, 3)]
    desk.add(60, 60)
    assert desk.sent() == [(3, 0, 1)]
    desk.add(40)
    assert desk.sent() == [(4, 5, 2)]
    desk.add(500)
    assert desk.sent() == [(6, 0, 1)]
    assert desk.box.open_batch is None


RUNS = st.lists(st.lists(st.integers(0, 120), max_size=8), max_size=6)


@given(RUNS, st.integers(1, 5), st.booleans())
def test_a_run_is_as_its_messages_one_by_one(
    runs: list[list[int]], messages_max: int, held: bool
) -> None:
    options = {"batching_max_messages": messages_max, "batching_max_bytes": 100}
    one_by_one, by_runs = Desk(held, **options), Desk(held, **options)
    for sizes in runs:
        receipts = one_by_one.add(*sizes)
        placed = by_runs.box.add_run([b"x" * size for size in sizes])
        places = [index + n for _, index, count in placed for n in range(count)]
        assert [receipt._index for receipt in receipts] == places
        assert sum(count for _, _, count in placed) == len(sizes)
        for name in ("pending_messages", "pending_bytes", "next_sequence_id", "in_flight"):
            assert getattr(by_runs.box, name) == getattr(one_by_one.box, name)
    for desk in (one_by_one, by_runs):
        desk.box.seal()
        if held:
            desk.box.begin(6)
    assert by_runs.sent() == one_by_one.sent()


def test_what_cannot_be_batched_is_no_run() -> None:
    assert Desk(batching_enabled=False).box.add_run([b"a"]) == []
    repeating = Desk(held=True, initial_sequence_id=5)
    assert repeating.box.add_run([b"a"]) == []
    assert not repeating.box.pending_messages


def test_delayed_messages_go_alone_and_in_order() -> None:
    desk = Desk()
    desk.add(1, 1)
    desk.add(1, extras=Extras(deliver_at_ms=5))
    desk.add(1)
    assert desk.sent() == [(0, 1, 2), (2, 0, 1)]
    desk.box.seal()
    assert desk.sent() == [(3, 0, 1)]


def test_receipts_tell_ids() -> None:
    desk = Desk(batching_max_messages=2)
    first, second = desk.add(1, 1)
    (third,) = desk.add(1)
    desk.box.seal()
    with pytest.raises(errors.InvalidStateError, match="pending"):
        _ = first.message_id
    assert desk.box.on_receipt(0, 9, 4) is ReceiptVerdict.DONE
    assert desk.box.on_receipt(0, 9, 4) is ReceiptVerdict.STALE
    assert desk.box.last_sequence_id == 1
    assert repr(first.message_id) == "9:4:-1:0"
    assert repr(second.message_id) == "9:4:-1:1"
    assert not third.is_done
    assert desk.box.on_receipt(2, 9, 5) is ReceiptVerdict.DONE
    assert repr(third.message_id) == "9:5:-1"
    assert desk.box.on_receipt(3, 9, 5) is ReceiptVerdict.STALE


def test_a_gap_is_told() -> None:
    desk = Desk(batching_enabled=False)
    desk.add(1, 1)
    assert desk.box.on_receipt(1, 9, 5) is ReceiptVerdict.GAP
    assert desk.box.in_flight == 2


def test_callbacks_and_their_faults(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(batching_enabled=False)
    (receipt,) = desk.add(1)
    called: list[bool] = []
    receipt.add_done_callback(lambda done: called.append(done.is_done))
    receipt.add_done_callback(lambda done: 1 / 0)
    desk.box.on_receipt(0, 1, 1)
    receipt.add_done_callback(lambda done: called.append(done.is_done))
    assert called == [True, True]
    assert "ZeroDivisionError" in caplog.text


def test_too_big_fails_that_entry_only() -> None:
    desk = Desk(batching_enabled=False)
    desk.encoder.max_message_size_bytes = 10
    small, big, after = desk.add(1, 11, 1)
    assert isinstance(big.error, errors.MessageTooBigError)
    assert big.error.topic == "t"
    assert not small.is_done
    assert not after.is_done
    assert desk.sent() == [(0, 0, 1), (2, 0, 1)]


def test_errors_of_single_frames() -> None:
    desk = Desk(batching_enabled=False)
    first, second, third = desk.add(1, 1, 1)
    assert not desk.box.fail(1, errors.NotAllowedError("no"))
    assert desk.box.fail(0, errors.NotAllowedError("no"))
    assert isinstance(first.error, errors.NotAllowedError)
    assert desk.box.verify(1)
    assert not second.is_done
    head, body = desk.box.resend()[0].frame
    desk.box.resend()[0].frame = (head, body[:-1] + b"?")
    assert not desk.box.verify(1)
    assert isinstance(second.error, errors.ChecksumError)
    assert not third.is_done


def test_timeout_fails_all_that_is_pending() -> None:
    desk = Desk(batching_max_messages=2)
    desk.add(1, 1)
    desk.now_s += 3
    desk.add(1)
    assert desk.box.expire(4, desk.now_s, "t") == 0
    desk.now_s += 1
    assert desk.box.expire(4, desk.now_s, "t") == 3
    assert all(isinstance(each.error, errors.OperationTimeoutError) for each in desk.settled)
    assert (desk.box.pending_messages, desk.box.pending_bytes) == (0, 0)
    assert desk.sent() == []


@given(st.floats(0, 1e6), st.floats(1e-3, 100))
def test_the_timeout_has_passed_when_its_alarm_rings(since_s: float, timeout_s: float) -> None:
    desk = Desk()
    desk.now_s = since_s
    desk.add(1)
    assert desk.box.expire(timeout_s, since_s + timeout_s, "t") == 1


def test_sequence_ids() -> None:
    desk = Desk(held=True, batching_enabled=False)
    desk.box.begin(7)
    assert desk.box.last_sequence_id == 7
    desk.add(1)
    desk.box.add(b"", None, 20)
    desk.add(1)
    assert [each[0] for each in desk.sent()] == [8, 20, 21]
    desk.box.begin(50)
    desk.add(1)
    assert [each[0] for each in desk.sent()] == [22]
    for last in (5, -1):
        chosen = Desk(held=True, initial_sequence_id=last, batching_enabled=False)
        assert chosen.box.last_sequence_id == last
        chosen.box.begin(7)
        chosen.add(1)
        assert [each[0] for each in chosen.sent()] == [last + 1], "as Java's initialSequenceId"


def test_what_is_added_before_the_producer_is_known() -> None:
    desk = Desk(held=True, batching_max_messages=2)
    desk.add(1, 1, 1)
    assert [bytes(each.frame[0]) for each in desk.box.take_unsent()] == [b""]
    desk.box.begin(9)
    assert desk.sent() == [(10, 11, 2)]
    desk.add(1)
    assert desk.sent() == [(12, 13, 2)]
    numbered = Desk(held=True)
    numbered.box.add(b"", None, 3)
    numbered.box.begin(9)
    numbered.box.seal()
    assert numbered.sent() == [(3, 0, 1)]
    failing = Desk(held=True, batching_max_messages=2)
    failing.add(1, 1, 1)
    failing.box.fail_all(errors.AlreadyClosedError("x"))
    assert [each.count for each in failing.settled] == [2, 1]


STEPS = st.lists(
    st.sampled_from(["add", "add", "add big", "seal", "receipt", "receipt", "reconnect", "fail"]),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_order_holds_and_nothing_is_lost(steps: list[str]) -> None:
    """A broker that loses the bytes in flight at each reconnect stores all, in order, once."""
    desk = Desk(batching_max_messages=3, batching_max_bytes=50)
    wire: deque[tuple[int, int]] = deque()
    stored: list[int] = []
    receipts: list[Receipt] = []

    def pump(frames: list[Outgoing]) -> None:
        wire.extend((each.sequence_id, each.highest_sequence_id) for each in frames)

    def broker_answers() -> None:
        if wire:
            first, last = wire.popleft()
            if first not in stored:  # deduplication
                stored.extend(range(first, last + 1))
            assert desk.box.on_receipt(first, 1, first) is not ReceiptVerdict.GAP

    for step in steps:
        if step.startswith("add"):
            receipts += desk.add(60 if step == "add big" else 5)
        elif step == "seal":
            desk.box.seal()
        elif step == "receipt":
            broker_answers()
        elif step == "reconnect":
            if wire:  # stored, but its receipt was lost
                first, last = wire[0]
                if first not in stored:
                    stored.extend(range(first, last + 1))
            wire.clear()
            pump(desk.box.resend())
        pump(desk.box.take_unsent())
        pending = [each for each in receipts if not each.is_done]
        assert desk.box.pending_messages == len(pending)
    desk.box.seal()
    pump(desk.box.take_unsent())
    while wire:
        broker_answers()
    assert stored == list(range(len(receipts)))
    assert all(receipt.is_done and receipt.error is None for receipt in receipts)
    assert sum(each.count for each in desk.settled) == len(receipts)


def test_fail_all_is_in_order() -> None:
    desk = Desk(batching_max_messages=2)
    desk.add(1, 1, 1)
    desk.box.fail_all(errors.AlreadyClosedError("x"))
    assert [each.sequence_id for each in desk.settled] == [0, 2]
    assert desk.box.pending() == []


def test_what_may_be_there_already_goes_alone() -> None:
    desk = Desk(held=True)
    desk.box.begin(4)
    for sequence_id in (5, 6, 6, 3, 7, 8):
        desk.box.add(b"x", None, sequence_id)
    desk.add(1)
    desk.box.seal()
    assert desk.sent() == [(5, 6, 2), (6, 0, 1), (3, 0, 1), (7, 9, 3)]


def test_numbered_from_where_the_broker_has_them() -> None:
    desk = Desk(held=True, initial_sequence_id=2)
    desk.add(1)
    desk.box.begin(5)
    desk.add(1, 1, 1, 1)
    desk.box.seal()
    assert desk.sent() == [(3, 0, 1), (4, 0, 1), (5, 0, 1), (6, 7, 2)]


@given(
    st.integers(-1, 12),
    st.booleans(),
    st.lists(st.none() | st.integers(0, 20), max_size=40),
)
def test_no_message_is_dropped_with_a_duplicate(
    stored: int, late: bool, wanted: list[int | None]
) -> None:
    """A broker that checks batches by their lowest sequence id stores each new one."""
    desk = Desk(held=True, batching_max_messages=5, initial_sequence_id=-1)
    if not late:
        desk.box.begin(stored)
    ids: list[int] = []
    for each in wanted:
        expected = desk.box.next_sequence_id if each is None else each
        desk.box.add(b"x", None, each)
        ids.append(expected)
    if late:
        desk.box.begin(stored)
    desk.box.seal()
    last = stored
    taken = 0
    for lowest, highest, count in desk.sent():
        if lowest > last:
            taken += count
            last = max(lowest, highest)
    expected_last = stored
    expected_taken = 0
    for each in ids:
        if each > expected_last:
            expected_taken += 1
            expected_last = each
    assert (taken, last) == (expected_taken, expected_last)


def test_duplicates_that_are_answered_early() -> None:
    """As by Apache's broker: at once, while receipts of stored messages come later."""
    desk = Desk(batching_enabled=False)
    receipts = [desk.box.add(b"x", None, sequence_id) for sequence_id in (5, 2, 6, 3, 3, 7)]
    assert desk.box.on_receipt(2, NOWHERE, NOWHERE) is ReceiptVerdict.DONE
    assert desk.box.on_receipt(3, NOWHERE, NOWHERE) is ReceiptVerdict.DONE
    assert desk.box.on_receipt(3, NOWHERE, NOWHERE) is ReceiptVerdict.DONE
    assert desk.settled == []
    assert desk.box.on_receipt(4, NOWHERE, NOWHERE) is ReceiptVerdict.STALE
    assert desk.box.on_receipt(8, NOWHERE, NOWHERE) is ReceiptVerdict.GAP
    assert desk.box.on_receipt(5, 1, 1) is ReceiptVerdict.DONE
    assert [each.is_done for each in receipts] == [True, True, False, False, False, False]
    assert desk.box.fail(6, errors.NotAllowedError("no"))
    assert [each.is_done for each in receipts] == [True] * 5 + [False]
    assert [each.message_id.entry_id for each in receipts[:2]] == [1, -1]
    # A new connection gets all of it again.
    desk.box.add(b"x", None, 4)
    assert desk.box.on_receipt(4, NOWHERE, NOWHERE) is ReceiptVerdict.DONE
    assert [each.sequence_id for each in desk.box.resend()] == [7, 4]
    assert desk.box.on_receipt(7, 1, 2) is ReceiptVerdict.DONE
    assert desk.box.in_flight == 1
    assert desk.box.on_receipt(4, NOWHERE, NOWHERE) is ReceiptVerdict.DONE
    assert desk.box.in_flight == 0


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=12), st.data())
def test_chunks_of_duplicates_in_any_order(
    messages: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """(chunks, whether it is a duplicate): only the last chunk of a duplicate gets an early receipt
    with -1:-1; or each of them, in order.
    """
    options = ProducerOptions(
        batching_enabled=False, chunking_enabled=True, chunk_max_message_size_bytes=10
    )
    settled: list[Outgoing] = []
    encoder = Encoder(3, "persistent://t/n/t", options, lambda: 42)
    box = Outbox(options, encoder, lambda: 1.0, lambda run, *_: settled.extend(run), MemoryLimit(0))
    box.begin(-1)
    receipts = [box.add(b"x" * 10 * chunks, None, None) for chunks, _ in messages]
    late: deque[tuple[int, int, int]] = deque()
    for sequence_id, (chunks, has) in enumerate(messages):
        late += [(sequence_id, 1, n) for n in range(chunks - has)]
        while late and data.draw(st.booleans()):
            assert box.on_receipt(*late.popleft()) is ReceiptVerdict.DONE
        if has:
            assert box.on_receipt(sequence_id, NOWHERE, NOWHERE) is ReceiptVerdict.DONE
    for each in late:
        assert box.on_receipt(*each) is ReceiptVerdict.DONE
    assert box.in_flight == box.pending_messages == 0
    assert not box._early
    for receipt, (_, has) in zip(receipts, messages, strict=True):
        assert (receipt.message_id.entry_id == -1) == has
        assert not has or receipt.message_id.first_chunk is None

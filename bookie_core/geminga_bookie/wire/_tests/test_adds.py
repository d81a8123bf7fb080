"""The table of unanswered adds beside a dumb oracle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie.errors import BookieUnavailable, BookkeeperError, RequestTimeout
from geminga_bookie.port import Completion
from geminga_bookie.wire.adds import AddLimits, AddRun, AddTable
from geminga_protocol._tests.cost import cpu_s

LIMITS = AddLimits(1000, 12, 1000, 100)


def run_of(first: int, count: int, deadline: float = 5.0, size: int = 10) -> AddRun:
    def done(_first: int, _count: int, _error: BookkeeperError | None) -> None:
        raise AssertionError("the table calls nobody")

    return AddRun(7, b"", first, [bytes(size)] * count, done, False, deadline)


def entries(completions: list[Completion]) -> list[int]:
    return [each.first + at for each in completions for at in range(each.entries)]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(-3, 60), st.integers(1, 12), st.booleans()), max_size=40),
    st.booleans(),
)
def test_each_entry_is_done_once(
    sizes: list[int], answers: list[tuple[int, int, bool]], gaps: bool
) -> None:
    """Entry n has transaction id n, or there are ids of other requests between the runs."""
    table = AddTable(LIMITS)
    first = 0
    for count in sizes:
        assert table.submit(run_of(first, count)) is None
        first += count
    sent: dict[int, int] = {}  # transaction id -> entry
    txn = 0

    def send() -> None:
        nonlocal txn
        while (run := table.next_to_send(txn)) is not None:
            sent.update({txn + at: run.first_entry_id + at for at in range(run.entries)})
            txn += run.entries + (2 if gaps else 0)

    send()
    done: dict[int, bool] = {}
    for at, count, ok in answers:
        expected = [
            sent[each] for each in range(at, at + count) if each in sent and sent[each] not in done
        ]
        error = None if ok else BookieUnavailable()
        found = table.answered(at, count, error)
        assert sorted(entries(found)) == expected
        assert all(each.error is error for each in found)
        done.update(dict.fromkeys(expected, ok))
        assert all(
            table.holds(each)
            == any(sent[other] not in done for other in run_txns(sent, sizes, each))
            for each in sent
        )
        send()
    left = sorted(entries(table.fail_all(BookieUnavailable())))
    assert left == [entry for entry in range(first) if entry not in done]
    assert table.is_empty
    assert (table.unanswered_bytes, table.queued_bytes) == (0, 0)


def run_txns(sent: dict[int, int], sizes: list[int], txn: int) -> list[int]:
    """The transaction ids of the run that has this one."""
    begin = 0
    for count in sizes:
        if begin <= sent[txn] < begin + count:
            return [each for each, entry in sent.items() if begin <= entry < begin + count]
        begin += count
    raise AssertionError


def test_no_more_than_the_window_is_sent() -> None:
    table = AddTable(AddLimits(100, 100, 1000, 1000))
    for first in range(0, 40, 4):
        table.submit(run_of(first, 4))
    for txn in (0, 4):
        run = table.next_to_send(txn)
        assert run is not None
        assert run.first_entry_id == txn
    assert table.next_to_send(8) is None
    table.answered(0, 4)
    assert table.next_to_send(8) is not None


def test_runs_expire_in_order() -> None:
    table = AddTable(AddLimits(100, 8, 1000, 1000))
    for first, deadline in ((0, 5.0), (4, 6.0), (8, 7.0)):
        table.submit(run_of(first, 4, deadline))
    for txn in (0, 4):
        run = table.next_to_send(txn)
        assert run is not None
        run.sent_upto = txn + 100
    table.answered(1, 2)
    assert table.expire(4.9) == ([], 0)
    found, sent_upto = table.expire(5.0)
    assert entries(found) == [0, 3]
    assert sent_upto == 100
    assert {type(each.error) for each in found} == {RequestTimeout}
    assert table.deadline == 6.0
    assert entries(table.expire(9.0)[0]) == list(range(4, 12))
    assert table.is_empty
    assert table.deadline is None


def test_the_queue_is_bounded_in_entries_and_bytes() -> None:
    table = AddTable(AddLimits(100, 100, 100, 8))
    assert table.submit(run_of(0, 50, size=1000)) is None, "the first one is always taken"
    assert table.submit(run_of(50, 1)) is not None
    table.next_to_send(0)
    for first in (0, 4):
        assert table.submit(run_of(first, 4)) is None
    assert table.submit(run_of(8, 1)) is not None


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(-2, 12), st.integers(1, 6)), max_size=30),
)
def test_entries_are_found_in_the_order_sent(
    runs: list[tuple[int, int]], answers: list[tuple[int, int]]
) -> None:
    """Runs that share entries: an answer is for the earliest that waits for it."""
    table = AddTable(LIMITS._replace(unanswered_entries_max=100))
    waiting: dict[int, list[int]] = {}  # entry -> transaction ids, in order
    txn = 0
    for first, count in runs:
        table.submit(run_of(first, count))
        assert table.next_to_send(txn) is not None
        for entry in range(first, first + count):
            waiting.setdefault(entry, []).append(txn)
            txn += 1
    for first, count in answers:
        expected = [
            waiting[each].pop(0) for each in range(first, first + count) if waiting.get(each)
        ]
        found = table.txns_of(7, first, count)
        assert sorted(txn + at for txn, many in found for at in range(many)) == sorted(expected)
        for begin, many in found:
            assert sum(each.entries for each in table.answered(begin, many)) == many
    assert table.txns_of(8, 0, 100) == []
    left = entries(table.fail_all(BookieUnavailable()))
    assert sorted(left) == sorted(each for each, txns in waiting.items() for _ in txns)
    assert not table._of_ledger


def test_answers_from_the_end_are_found_at_once() -> None:
    """As of a bookie that refuses the latest adds first: not by looking through all others."""
    count = 20_000
    table = AddTable(AddLimits(1 << 30, count, 1 << 30, count))
    for entry_id in range(count):
        table.submit(run_of(entry_id, 1, size=1))
        assert table.next_to_send(entry_id) is not None

    def answer() -> None:
        for entry_id in range(count - 1, -1, -1):
            assert table.txns_of(7, entry_id, 1) == [(entry_id, 1)]
            table.answered(entry_id, 1)

    assert cpu_s(answer, tries=1) < 1.0
    assert table.is_empty

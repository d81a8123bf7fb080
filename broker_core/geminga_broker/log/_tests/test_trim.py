"""Rules of trimming."""

from __future__ import annotations

import pytest

from geminga_broker.log._tests.test_chain import chain_of, pos
from geminga_broker.log.ack_state import AckState
from geminga_broker.log.cursor import TrimHold
from geminga_broker.log.options import Retention
from geminga_broker.log.trim import ledgers_to_trim
from geminga_protocol.ids import Position

NONE = Retention()


def trimmed(
    sizes: list[int], marks: list[Position], retention: Retention = NONE, now_ms: int = 1
) -> list[int]:
    chain = chain_of(sizes)
    chain.ledgers[-1].closed_ms = 0
    return [ledger.ledger_id for ledger in ledgers_to_trim(chain, marks, retention, now_ms)]


def test_the_slowest_cursor_bounds_trimming() -> None:
    assert trimmed([2, 2, 2, 2], [pos(5, 0), pos(9, 1)]) == [3]
    assert trimmed([2, 2, 2, 2], [pos(5, 1), pos(9, 1)]) == [3, 5]
    assert trimmed([2, 2, 2, 2], [pos(3, 0)]) == []


def test_the_open_ledger_is_never_trimmed() -> None:
    assert trimmed([2, 2], [pos(5, 1)]) == [3]
    assert trimmed([2, 0], [pos(3, 1)]) == [3]
    assert trimmed([2], []) == []


def test_without_cursors_only_retention_holds() -> None:
    assert trimmed([2, 2, 1], []) == [3, 5]
    assert trimmed([2, 2, 1], [], Retention(-1, -1)) == []


def test_retention_by_time_and_size() -> None:
    assert trimmed([2, 2, 2], [], Retention(10, -1), now_ms=10_001) == []
    assert trimmed([2, 2, 2], [], Retention(10, -1), now_ms=10_002) == [3, 5]
    # sixty bytes in all: a ledger goes while at least the bound is left without it
    assert trimmed([2, 2, 2], [], Retention(-1, 41)) == []
    assert trimmed([2, 2, 2], [], Retention(-1, 40)) == [3]
    assert trimmed([2, 2, 2], [], Retention(-1, 21)) == [3]
    assert trimmed([2, 2, 2], [], Retention(-1, 20)) == [3, 5]


def test_what_is_passed_while_it_is_kept_stays_until_the_block_ends_well() -> None:
    """The block stores a replacement of the passed entries: until then they are needed."""
    state = AckState(chain_of([2, 2, 2]), pos(3, -1))
    passed: list[Position] = []
    hold = TrimHold(chain_of([2, 2, 2]), state, lambda: passed.append(hold.mark))
    with pytest.raises(RuntimeError), hold.keeping():
        state.ack_cumulative(pos(5, 1))
        hold.moved()
        raise RuntimeError("it could not be stored")
    assert set(passed) == {pos(3, -1)}
    assert hold.mark == pos(3, -1)
    with hold.keeping():
        assert hold.mark == pos(3, -1)
    assert hold.mark == passed[-1] == pos(5, 1)

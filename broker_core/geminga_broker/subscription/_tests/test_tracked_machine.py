"""The machine of Shared and Key_Shared: events in, effects out (BR-31 to BR-34)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import position
from geminga_broker.log.api import Ack
from geminga_broker.subscription import delayed_tracker
from geminga_broker.subscription._tests.machine_scripts import (
    BEGIN,
    acks,
    at,
    entries,
    entry,
    join,
    key_shared,
    read,
    sent,
    shared,
)
from geminga_broker.subscription.effects import (
    AGAIN,
    PASS_OVER,
    REWIND,
    SAVE_DELAYS,
    WAKE,
    Acknowledge,
    CollectDue,
    CountRedelivered,
    Read,
    ReadAt,
    Send,
    WakeAt,
)
from geminga_broker.subscription.events import (
    Acked,
    DeletedOutside,
    DueCollected,
    EntriesRead,
    EntriesReadAgain,
    Flow,
    Left,
    PartsRecorded,
    ReadableUpto,
    ReadFailed,
    Redelivered,
    Resolved,
)


def test_entries_wait_for_permits() -> None:
    machine, _, _ = shared()
    one = join(machine, "one", 2)
    assert sent(read(machine, *entries(0, 1, 2, 3))) == [("one", [0, 1])]
    assert (one.permits, one.unacked, list(one.pending)) == (0, 2, at(0, 1))
    assert machine.step(BEGIN) == []
    machine.step(Flow(one, 5))
    assert sent(machine.step(BEGIN)) == [("one", [2, 3])]


def test_acknowledged_between_a_read_and_its_result() -> None:
    machine, known, _ = shared()
    one = join(machine, "one", 5)
    machine.step(BEGIN)
    assert machine.step(Acked(one, acks(1))) == [Acknowledge(acks(1))]
    known.deleted.update(at(1))
    assert sent(machine.step(EntriesRead(entries(0, 1, 2), 0))) == [("one", [0, 2])]


def test_unsent_entries_are_checked_again_after_a_replay() -> None:
    """The acknowledgement comes before a replay is read, and the unsent entries go after it."""
    machine, known, _ = shared()
    one = join(machine, "one", 2)
    read(machine, *entries(0, 1, 2, 3))
    machine.step(Acked(one, acks(2)))
    known.deleted.update(at(2))
    machine.step(Redelivered(one, at(0)))
    machine.step(Flow(one, 10))
    assert machine.step(BEGIN)[-1] == ReadAt(at(0), machine.state.bytes_max)
    effects = machine.step(EntriesReadAgain(at(0), entries(0), 0))
    assert sent(effects) == [("one", [0])]
    assert sent(machine.step(BEGIN)) == [("one", [3])]


def test_entries_given_back_during_a_replay_are_considered() -> None:
    machine, _, _ = shared()
    one = join(machine, "one", 3)
    read(machine, *entries(0, 1, 2))
    machine.step(Redelivered(one, at(2)))
    machine.step(Flow(one, 3))
    assert machine.step(BEGIN)[-1] == ReadAt(at(2), machine.state.bytes_max)
    machine.step(Redelivered(one, at(0)))
    assert machine.step(EntriesReadAgain(at(2), entries(2), 0)) == [AGAIN]
    assert machine.step(BEGIN)[-1] == ReadAt(at(0, 2), machine.state.bytes_max)
    effects = machine.step(EntriesReadAgain(at(0, 2), entries(0, 2), 0))
    assert sent(effects) == [("one", [0, 2])]
    [send] = [effect for effect in effects if isinstance(effect, Send)]
    assert send.redeliveries == {position(0): 1, position(2): 1}


def test_a_position_given_back_twice_counts_once() -> None:
    machine, _, _ = shared()
    one = join(machine, "one", 3)
    read(machine, *entries(0, 1))
    effects = machine.step(Redelivered(one, at(0, 0, 7)))
    assert effects == [CountRedelivered(one, 1), WAKE]
    assert machine.holdings.counts == {position(0): 1}


def test_a_leaving_members_entries_are_queued_unless_all_leave() -> None:
    for all_leave in (False, True):
        machine, _, _ = shared()
        one, two = join(machine, "one", 3), join(machine, "two")
        read(machine, *entries(0, 1))
        assert machine.step(Left(one, 0.0, all_leave)) == [WAKE]
        machine.step(Flow(two, 3))
        expected = Read if all_leave else ReadAt
        assert isinstance(machine.step(BEGIN)[-1], expected)


def test_entries_read_before_a_reset_are_not_sent() -> None:
    """All members left during a read: the next member's round reads the entries again."""
    machine, _, _ = shared()
    one = join(machine, "one", 3)
    assert machine.step(BEGIN) == [REWIND, Read(3, machine.state.bytes_max)]
    machine.step(Left(one, 0.0, True))
    two = join(machine, "two", 3)
    assert machine.step(EntriesRead(entries(0, 1), 0)) == [AGAIN]
    assert (two.permits, two.unacked) == (3, 0)
    assert machine.step(BEGIN) == [REWIND, Read(3, machine.state.bytes_max)]
    assert sent(machine.step(EntriesRead(entries(0, 1), 0))) == [("two", [0, 1])]


def test_parts_are_counted_when_the_cursor_has_recorded_them() -> None:
    machine, known, _ = shared(batch_index_ack=True)
    one = join(machine, "one", 5)
    read(machine, entry(0, messages=3))
    part = Ack(position(0), (0b110,), 3)
    assert machine.step(Acked(one, [part])) == [Acknowledge([part], one, at(0))]
    known.ack_sets[position(0)] = (0b110,)
    assert machine.step(PartsRecorded(one, at(0))) == []
    assert one.unacked == 2
    known.deleted.update(at(0))
    machine.step(PartsRecorded(one, at(0)))
    assert not one.unacked
    assert not one.pending


def test_delayed_entries_wait_and_are_collected() -> None:
    machine, _, delays = shared()
    join(machine, "one", 5)
    machine.step(BEGIN)
    effects = machine.step(EntriesRead([entry(0, deliver_at=50), *entries(1)], 10))
    assert sent(effects) == [("one", [1])]
    assert (len(delays), delays.next_due_ms) == (1, 50)
    assert isinstance(machine.step(BEGIN)[-1], CollectDue)
    assert isinstance(machine.step(DueCollected(()))[-1], Read)
    assert machine.step(EntriesRead((), 20)) == [WakeAt(50)]
    machine.step(BEGIN)
    assert delays.pop_due(60, 9) == [(position(0), -1)]
    effects = machine.step(DueCollected([(position(0), -1)]))
    assert effects == [ReadAt(at(0), machine.state.bytes_max)]


def test_delays_are_saved_and_passed_over_by_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_tracker, "RUN_ENTRIES", 2)
    machine, known, delays = shared()
    join(machine, "one", 5)
    machine.step(BEGIN)
    effects = machine.step(EntriesRead([entry(n, deliver_at=50) for n in (0, 1)], 10))
    assert effects == [SAVE_DELAYS, AGAIN]
    assert isinstance(machine.step(BEGIN)[-1], CollectDue)
    assert machine.step(DueCollected(())) == [PASS_OVER, Read(5, machine.state.bytes_max)]
    known.deleted.update(at(0, 1))
    assert machine.step(DeletedOutside(position(1))) == [SAVE_DELAYS, WAKE]
    assert not delays


def test_lost_delays_are_read_again() -> None:
    machine, _, delays = shared()
    join(machine, "one", 5)
    machine.step(BEGIN)
    machine.step(EntriesRead([entry(0, deliver_at=50)], 10))
    assert isinstance(machine.step(BEGIN)[-1], CollectDue)
    delays.clear()
    effects = machine.step(DueCollected(None))
    assert effects[0] == REWIND
    assert isinstance(effects[1], Read)
    assert not delays


def test_a_blocked_member_goes_on_at_half_of_its_limit() -> None:
    machine, _, _ = shared()
    one = join(machine, "one", 10)
    one.set_limit(4)
    assert sent(read(machine, *entries(*range(6)))) == [("one", [0, 1, 2, 3])]
    assert one.blocked
    assert machine.step(Flow(one, 3)) == []
    assert (one.permits, one.held) == (6, 3)
    assert machine.step(Acked(one, acks(0))) == [Acknowledge(acks(0))]
    assert machine.step(Acked(one, acks(1))) == [Acknowledge(acks(1)), WAKE]
    assert (one.permits, one.held) == (9, 0)
    assert sent(machine.step(BEGIN)) == [("one", [4, 5])]


def test_deleted_from_outside_while_it_waits() -> None:
    machine, known, _ = shared()
    one = join(machine, "one", 1)
    read(machine, *entries(0, 1, 2))
    known.deleted.update(at(1))
    machine.step(DeletedOutside(position(-1)))
    machine.step(Flow(one, 5))
    assert sent(machine.step(BEGIN)) == [("one", [2])]


def test_every_read_respects_readable_upto() -> None:
    machine, _ = key_shared(dispatch_entries_max=2)
    for number in range(30):
        join(machine, f"m{number}", 50)
    assert machine.step(ReadableUpto(position(7))) == [WAKE]
    bound = Read(2, machine.state.bytes_max, position(7))
    assert machine.step(BEGIN) == [REWIND, bound]
    assert machine.step(EntriesRead([entry(n, key=f"k{n}") for n in range(2)], 0)) == [bound]


def test_a_pending_acknowledgement_frees_the_member_and_is_recorded_when_it_is_committed() -> None:
    machine, _, _ = shared()
    one = join(machine, "one", 5)
    read(machine, *entries(0, 1, 2))
    assert machine.step(Acked(one, acks(0, 1), pending=True)) == []
    assert (one.unacked, list(one.pending)) == (1, at(2))
    assert machine.step(Redelivered(one, at(0, 1))) == [CountRedelivered(one, 0), WAKE]
    assert isinstance(machine.step(BEGIN)[-1], Read)
    assert machine.step(EntriesRead((), 0)) == []
    assert machine.step(Resolved(at(0), True)) == [Acknowledge(acks(0)), WAKE]
    assert not machine.holdings.counts


def test_a_pending_acknowledgement_that_is_revoked_brings_the_entry_again() -> None:
    for leaves in (False, True):
        machine, _, _ = shared()
        one, two = join(machine, "one", 2), join(machine, "two")
        read(machine, *entries(0, 1))
        machine.step(Acked(one, acks(0), pending=True))
        if leaves:
            machine.step(Left(one, 0.0))
        machine.step(Flow(two, 5))
        waiting = [1] if leaves else []
        assert machine.step(Resolved(at(0), False)) == [WAKE]
        assert machine.step(BEGIN)[-1] == ReadAt(at(0, *waiting), machine.state.bytes_max)
        effects = machine.step(EntriesReadAgain(at(0, *waiting), entries(0, *waiting), 0))
        assert sent(effects) == [("two", [0, *waiting])]
        assert machine.holdings.counts == {position(0): 1}


def test_pending_entries_are_not_sent_after_a_reset_or_from_the_queue() -> None:
    machine, _, _ = shared()
    one = join(machine, "one", 3)
    read(machine, *entries(0, 1, 2))
    machine.step(Acked(one, acks(0), pending=True))
    machine.step(Redelivered(one, at(1)))
    machine.step(Acked(one, acks(1), pending=True))
    machine.step(Flow(one, 5))
    assert machine.step(BEGIN) == [ReadAt(at(1), machine.state.bytes_max)]
    assert sent(machine.step(EntriesReadAgain(at(1), entries(1), 0))) == []
    machine.step(Left(one, 0.0))
    two = join(machine, "two", 9)
    assert sent(read(machine, *entries(0, 1, 2))) == [("two", [2])]
    machine.step(Resolved(at(0, 1), False))
    assert machine.step(BEGIN) == [ReadAt(at(0, 1), machine.state.bytes_max)]
    assert sent(machine.step(EntriesReadAgain(at(0, 1), entries(0, 1), 0))) == [("two", [0, 1])]
    assert two.unacked == 3


def test_pending_acknowledgements_end_the_limit_of_the_subscription() -> None:
    machine, _, _ = shared(unacked_per_subscription_max=2)
    one = join(machine, "one", 9)
    read(machine, *entries(0, 1))
    assert machine.step(BEGIN) == []
    assert machine.step(Acked(one, acks(0, 1), pending=True)) == [WAKE]
    assert isinstance(machine.step(BEGIN)[-1], Read)


# ---- Key_Shared ----


def test_entries_read_before_a_failure_are_sent() -> None:
    machine, _ = key_shared(dispatch_entries_max=2)
    members = [join(machine, f"m{number}", 50) for number in range(30)]
    assert machine.step(BEGIN) == [REWIND, Read(2, machine.state.bytes_max)]
    again = machine.step(EntriesRead([entry(n, key=f"k{n}") for n in range(2)], 0))
    assert again == [Read(2, machine.state.bytes_max)]
    effects = machine.step(ReadFailed())
    assert sorted(number for _, numbers in sent(effects) for number in numbers) == [0, 1]
    assert effects[-1] == AGAIN
    assert machine.step(ReadFailed()) == []
    assert sum(member.unacked for member in members) == 2


def test_a_moved_hash_waits_until_its_old_owner_is_done() -> None:
    machine, strategy = key_shared(consistent_hashing=False)
    one = join(machine, "one", 50)
    first = [entry(n, key=f"k{n % 10}") for n in range(10)]
    assert sent(read(machine, *first)) == [("one", list(range(10)))]
    two = join(machine, "two", 50)
    second = [entry(n, key=f"k{n % 10}") for n in range(10, 20)]
    (name, stayed), *others = sent(read(machine, *second))
    assert name == "one"
    assert others == []
    moved = sorted(set(range(10, 20)) - set(stayed))
    assert moved
    assert strategy.waiting == len(moved)
    effects = machine.step(Acked(one, acks(*range(10))))
    assert effects == [Acknowledge(acks(*range(10))), WAKE]
    assert machine.step(BEGIN) == [ReadAt(at(*moved), machine.state.bytes_max)]
    found = [second[number - 10] for number in moved]
    assert sent(machine.step(EntriesReadAgain(at(*moved), found, 0))) == [("two", moved)]
    assert list(two.pending) == at(*moved)

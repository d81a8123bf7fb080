"""The machine of Exclusive and Failover: events in, effects out (BR-30)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import position
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack
from geminga_broker.subscription._tests.machine_scripts import (
    BEGIN,
    MARKER,
    POLICY,
    acks,
    at,
    entries,
    entry,
    join,
    ordered,
    read,
    sent,
)
from geminga_broker.subscription.effects import (
    AGAIN,
    REWIND,
    WAKE,
    Acknowledge,
    AcknowledgeUpto,
    CountRedelivered,
    PauseUntil,
    Read,
    ReadFor,
    Send,
    TellActive,
)
from geminga_broker.subscription.events import (
    Acked,
    EntriesRead,
    Flow,
    Joined,
    Left,
    ReadableUpto,
    Redelivered,
    Resolved,
    RoundBegun,
    Welcomed,
)
from geminga_broker.subscription.state import Member
from geminga_broker.topic.api import SubType


def test_an_exclusive_subscription_takes_one() -> None:
    machine = ordered()
    one = join(machine, "one", 10)
    with pytest.raises(BrokerError, match="already connected"):
        machine.step(Joined(Member("two"), POLICY))
    assert machine.state.members == [one]


def test_a_round_rewinds_reads_and_sends() -> None:
    machine = ordered()
    one = join(machine, "one", 2)
    first, last = entries(0, 1), entries(2)
    assert machine.step(BEGIN) == [REWIND, Read(2, machine.state.bytes_max)]
    assert machine.step(EntriesRead(first + last, 0)) == [Send(one, first, 2), AGAIN]
    assert machine.step(BEGIN) == []
    assert machine.step(Flow(one, 5)) == [WAKE]
    assert machine.step(BEGIN) == [Send(one, last, 1), AGAIN]
    assert machine.step(BEGIN) == [Read(4, machine.state.bytes_max)]
    assert machine.step(EntriesRead((), 0)) == []


def test_markers_are_acknowledged_before_the_rest_is_sent() -> None:
    machine = ordered()
    one = join(machine, "one", 5)
    plain = entries(0, 2)
    effects = read(machine, plain[0], entry(1, marker=MARKER), plain[1])
    assert effects == [Acknowledge(acks(1)), Send(one, plain, 2), AGAIN]


def test_entries_read_before_a_reset_are_not_sent() -> None:
    machine = ordered()
    one = join(machine, "one", 5)
    machine.step(BEGIN)
    assert machine.step(Redelivered(one, at(0))) == [CountRedelivered(one, 1), WAKE]
    assert machine.step(EntriesRead(entries(0), 0)) == [AGAIN]
    assert machine.step(BEGIN) == [REWIND, Read(5, machine.state.bytes_max)]
    assert one.permits == 5


def test_failover_notifies_the_active_consumer_and_pauses() -> None:
    machine = ordered(SubType.Failover, failover_delay_s=3.0)
    one, two = Member("a"), Member("b")
    for member in (one, two):
        machine.step(Joined(member, POLICY))
    assert machine.step(Welcomed(one, 0.0))[-2:] == [ReadFor(machine.active), WAKE]
    active = machine.active
    assert active is not None
    other = two if active is one else one
    assert machine.step(Welcomed(two, 0.0)) == [TellActive(two, two is active)]
    machine.step(Flow(active, 5))
    machine.step(Flow(other, 5))
    assert sent(read(machine, *entries(0))) == [(active.name, [0])]
    effects = machine.step(Left(active, 10.0))
    assert effects == [TellActive(other, True), ReadFor(other), WAKE]
    assert machine.step(RoundBegun(12.0)) == [PauseUntil(13.0)]
    assert machine.step(RoundBegun(13.0)) == [REWIND, Read(5, machine.state.bytes_max)]


def test_a_cumulative_acknowledgement_keeps_parts_only_if_they_are_recorded() -> None:
    ack = Ack(position(3), (1,), 2)
    for recorded in (False, True):
        machine = ordered(batch_index_ack=recorded)
        one = join(machine, "one")
        assert machine.step(Acked(one, [ack], True)) == [AcknowledgeUpto(ack, recorded)]


def test_reads_respect_readable_upto() -> None:
    machine = ordered()
    join(machine, "one", 5)
    assert machine.step(ReadableUpto(position(3))) == [WAKE]
    assert machine.step(BEGIN) == [REWIND, Read(5, machine.state.bytes_max, position(3))]
    machine.step(EntriesRead((), 0))
    machine.step(ReadableUpto(None))
    assert machine.step(BEGIN) == [Read(5, machine.state.bytes_max)]


def test_pending_acknowledgements_are_not_sent_again_until_they_are_revoked() -> None:
    machine = ordered()
    one = join(machine, "one", 9)
    read(machine, *entries(0, 1, 2))
    assert machine.step(Acked(one, acks(0, 1), pending=True)) == []
    machine.step(Redelivered(one, None))
    assert sent(read(machine, *entries(0, 1, 2))) == [("one", [2])]
    assert machine.step(Resolved(at(0), True)) == [Acknowledge(acks(0))]
    assert machine.step(Resolved(at(1), False)) == [WAKE]
    assert sent(read(machine, *entries(1, 2))) == [("one", [1, 2])]


def test_entries_that_wait_for_permits_may_be_acknowledged_pending() -> None:
    machine = ordered()
    one = join(machine, "one", 1)
    assert sent(read(machine, *entries(0, 1, 2))) == [("one", [0])]
    machine.step(Acked(one, acks(1), pending=True))
    machine.step(Flow(one, 5))
    assert sent(machine.step(BEGIN)) == [("one", [2])]


def test_only_the_active_member_has_all_sent_again() -> None:
    machine = ordered(SubType.Failover)
    members = [join(machine, name, 5) for name in ("a", "b")]
    read(machine, *entries(0))
    [standby] = [member for member in members if member is not machine.active]
    assert machine.step(Redelivered(standby, at(0))) == []
    assert machine.step(Redelivered(standby, None)) == []
    assert machine.step(BEGIN) == [Read(4, machine.state.bytes_max)]

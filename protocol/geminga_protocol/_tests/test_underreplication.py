"""Nodes of auto-recovery: as Apache's BookKeeper 4.17 writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.bookkeeper import underreplication as tree
from geminga_protocol.bookkeeper.underreplication import Underreplicated


def test_paths() -> None:
    root = "/ledgers/underreplication"
    assert tree.task(0xCAFE) == f"{root}/ledgers/0000/0000/0000/cafe/urL0000051966"
    assert tree.task(1 << 40 | 7) == f"{root}/ledgers/0000/0100/0000/0007/urL1099511627783"
    assert tree.lock(7) == f"{root}/locks/urL0000000007"


@given(st.integers(0, (1 << 63) - 1))
def test_the_id_is_in_the_name(number: int) -> None:
    for path in (tree.task(number), tree.lock(number)):
        assert tree.ledger_id(path.rpartition("/")[2]) == number


@pytest.mark.parametrize("name", ["urL1", "urLx000000001", "0000", "", "urL00000000001x"])
def test_other_names(name: str) -> None:
    assert tree.ledger_id(name) is None


def test_values() -> None:
    task = Underreplicated(("127.0.0.1:3181", "b2"), 1700000000000)
    text = b'replica: "127.0.0.1:3181"\nreplica: "b2"\nctime: 1700000000000\n'
    assert tree.encode_task(task) == text
    assert tree.decode_task(text) == task
    assert tree.decode_task(b"") == Underreplicated((), None)
    assert tree.layout() == b'type: "BASIC"\nversion: 1\n'
    assert tree.encode_lock("h1") == b'bookieId: "h1"\n' == tree.encode_vote("h1")
    assert tree.decode_lock(b'bookieId: "h1"\n') == "h1" == tree.decode_vote(b'bookieId: "h1"')


@given(st.sampled_from(sorted(tree._TIMES)), st.integers(0, 1 << 60))
def test_times_are_binary(path: str, at_ms: int) -> None:
    value = tree.encode_time(path, at_ms)
    assert value[0] == 8
    assert tree.decode_time(path, value) == at_ms
    assert tree.decode_time(path, b"") is None


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(value: bytes) -> None:
    for decode in (tree.decode_task, tree.decode_lock, tree.decode_vote, tree.check_layout):
        try:
            decode(value)
        except ValueError:
            pass
    try:
        tree.decode_time(tree.REPLICAS_CHECK_TIME, value)
    except ValueError:
        pass


def test_bookies_are_added_once() -> None:
    known = Underreplicated(("a",), 5)
    assert tree.add_replicas(known, ["a", "a"], 9) is known
    assert tree.add_replicas(known, ["b", "a", "b"], 9) == Underreplicated(("a", "b"), 9)


def test_votes_are_in_order_of_their_numbers() -> None:
    assert tree.in_order(["V_0000000010", "other", "V_0000000009", "V_x"]) == [
        "V_0000000009",
        "V_0000000010",
    ]


@pytest.mark.parametrize("value", [b'type: "OTHER"\nversion: 1', b'type: "BASIC"\nversion: 2', b""])
def test_another_layout_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"LAYOUT|required"):
        tree.check_layout(value)

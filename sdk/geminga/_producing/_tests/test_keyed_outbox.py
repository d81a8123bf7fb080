from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga._connection.core import MemoryLimit
from geminga._entries.encode import Encoder, Extras
from geminga._producing.keyed_outbox import KeyedOutbox
from geminga._producing.receipt import Outgoing, Receipt
from geminga._producing.window import ReceiptVerdict
from geminga.options import BatchingType, ProducerOptions
from geminga_protocol.batch import split_batch
from geminga_protocol.frames import FrameReader
from geminga_protocol.keys import sticky_key
from geminga_protocol.payload import parse_metadata, split


def new_box(**options: object) -> KeyedOutbox:
    made = ProducerOptions(batching_type=BatchingType.KEY_BASED, **options)
    encoder = Encoder(1, "t", made, lambda: 42)
    box = KeyedOutbox(made, encoder, lambda: 1.0, lambda *_: None, MemoryLimit(9))
    box.begin(-1)
    return box


def add(box: KeyedOutbox, key: str | None, data: bytes = b"x") -> Receipt:
    return box.add(data, None if key is None else Extras(partition_key=key), None)


def sent(outgoing: Outgoing) -> tuple[bytes, list[int], int, bool]:
    """Key, sequence ids of the messages, the command's own, and whether it has a highest one."""
    (frame,) = FrameReader().feed(b"".join(outgoing.frame))
    assert frame.payload is not None
    metadata = parse_metadata(frame.payload)
    assert frame.command.send.sequence_id == metadata.sequence_id
    numbers = [metadata.sequence_id]
    if metadata.HasField("num_messages_in_batch"):
        payload = split(frame.payload).payload
        numbers = [each.sequence_id for each, _ in split_batch(metadata, payload)]
    tells = metadata.HasField("highest_sequence_id") or bool(frame.command.send.highest_sequence_id)
    key = sticky_key(metadata) if metadata.HasField("partition_key") else b""
    return key, numbers, metadata.sequence_id, tells


def test_a_batch_for_each_key_in_order_of_their_ends() -> None:
    box = new_box()
    for key in ("a", "b", "b", "a", None, None, "a"):
        add(box, key)
    assert box.open_batch is not None
    box.seal()
    assert [sent(each) for each in box.take_unsent()] == [
        (b"b", [1, 2], 2, False),
        (b"", [4, 5], 5, False),
        (b"a", [0, 3, 6], 6, False),
    ]
    assert [each.highest_sequence_id for each in box.pending()] == [2, 5, 6]
    assert box.open_batch is None
    assert box.open_since_s is None


def test_limits_count_over_all() -> None:
    box = new_box(batching_max_messages=3, batching_max_bytes=100)
    for key in "abc":
        add(box, key)
    assert len(box.take_unsent()) == 3
    add(box, "a", b"x" * 60)
    add(box, "b", b"x" * 60)
    assert len(box.take_unsent()) == 1
    box.add(b"", Extras(deliver_at_ms=5), None)
    assert len(box.take_unsent()) == 2


def test_ordering_keys_go_before() -> None:
    box = new_box()
    for n in range(2):
        box.add(b"", Extras(partition_key=str(n), ordering_key=b"o"), None)
    box.seal()
    assert len(box.take_unsent()) == 1


@given(
    st.lists(st.sampled_from(["a", "b", "c", "seal", "receipt", "again"]), max_size=60),
    st.integers(1, 5),
)
def test_order_of_each_key_and_nothing_twice(steps: list[str], messages_max: int) -> None:
    """A broker that drops duplicates by sequence id only stores all, in order for each key."""
    box = new_box(batching_max_messages=messages_max)
    wire: list[Outgoing] = []
    stored: list[tuple[bytes, int]] = []
    last = -1
    receipts = []

    def answer() -> None:
        nonlocal last
        key, numbers, sequence_id, _ = sent(wire[0])
        if sequence_id > last:
            last = sequence_id
            stored.extend((key, number) for number in numbers)
        wire.pop(0)
        assert box.on_receipt(sequence_id, 1, 1) is ReceiptVerdict.DONE

    for step in steps:
        if step in "abc":
            receipts.append(add(box, step))
        elif step == "seal":
            box.seal()
        elif step == "receipt" and wire:
            answer()
        elif step == "again":
            wire = box.resend()
        wire += box.take_unsent()
    box.seal()
    wire += box.take_unsent()
    while wire:
        answer()
    assert sorted(number for _, number in stored) == list(range(len(receipts)))
    for key in (b"a", b"b", b"c"):
        mine = [number for each, number in stored if each == key]
        assert mine == sorted(mine)
    assert all(receipt.is_done for receipt in receipts)
    assert box.pending_messages == 0

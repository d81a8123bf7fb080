"""Every command: any chunking gives the same events, hand encoders equal protobuf, both roles."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geminga_protocol import encode
from geminga_protocol._tests.pair import ConnectionPair, payload_frame
from geminga_protocol._tests.strategies import chunkings
from geminga_protocol._tests.strategies import commands as any_command
from geminga_protocol.commands import (
    answers,
    connection,
    consuming,
    lookup,
    producing,
    schemas,
)
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.frames import SUBMESSAGE, Frame, FrameReader
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandSend,
    CommandSubscribe,
    KeySharedMeta,
    Schema,
    ServerError,
)

U64 = st.integers(0, (1 << 64) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
PAYLOAD_TYPES = (BaseCommand.SEND, BaseCommand.MESSAGE)


def events(frames: list[Frame]) -> list[tuple[int, bytes, bytes | None]]:
    return [
        (
            each.type,
            each.command.SerializeToString(deterministic=True),
            None if each.payload is None else bytes(each.payload),
        )
        for each in frames
    ]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(any_command(), st.binary(max_size=50)), max_size=4), st.data())
def test_any_chunking_gives_the_same_events(
    sent: list[tuple[BaseCommand, bytes]], data: st.DataObject
) -> None:
    stream = b""
    for command, payload in sent:
        if command.type in PAYLOAD_TYPES and payload:
            stream += b"".join(payload_frame(command, payload))
        else:
            stream += encode.frame(command)
    whole = FrameReader().feed(stream)
    assert [each.command for each in whole] == [command for command, _ in sent]
    assert [each.error for each in whole] == [None] * len(sent)
    reader = FrameReader()
    frames = []
    for chunk in data.draw(chunkings(stream)):
        frames += reader.feed(chunk)
    assert events(frames) == events(whole)
    assert reader.buffered == 0


@pytest.mark.parametrize("kind", sorted(SUBMESSAGE))
def test_every_type_byte_by_byte(kind: int) -> None:
    @settings(max_examples=8, deadline=None, database=None)
    @given(any_command(kind))
    def check(command: BaseCommand) -> None:
        reader = FrameReader()
        frames = []
        for byte in encode.frame(command):
            frames += reader.feed(bytes((byte,)))
        assert [(each.type, each.command, each.error) for each in frames] == [(kind, command, None)]
        assert encode.framed(getattr(command, SUBMESSAGE[kind])) == encode.frame(command)

    check()


@given(U64, U64, LONG, LONG, LONG)
def test_send_receipt_equals_protobuf(
    producer: int, sequence: int, ledger: int, entry: int, highest: int
) -> None:
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    body = command.send_receipt
    body.producer_id = producer
    body.sequence_id = sequence
    body.message_id.ledgerId = ledger % (1 << 64)
    body.message_id.entryId = entry % (1 << 64)
    body.highest_sequence_id = highest % (1 << 64)
    ours = encode.send_receipt(producer, sequence, ledger, entry, highest)
    assert ours == encode.frame(command)


@given(U64, st.lists(st.tuples(LONG, LONG, st.lists(LONG, max_size=3)), max_size=300))
@example(1, [(-1, -1, [])])
def test_individual_acks_equal_protobuf(
    consumer: int, acked: list[tuple[int, int, list[int]]]
) -> None:
    ids = [MessageId(ledger, entry, ack_set=tuple(left)) for ledger, entry, left in acked]
    assert encode.individual_acks(consumer, acked) == consuming.ack(consumer, ids)


@given(
    U64,
    U64,
    st.integers(1, (1 << 31) - 1),
    st.binary(max_size=9),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
)
def test_send_equals_protobuf(
    producer: int, sequence: int, count: int, payload: bytes, highest: int, chunk: bool
) -> None:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = producer
    command.send.sequence_id = sequence
    if count > 1:
        command.send.num_messages = count
    if highest:
        command.send.highest_sequence_id = highest
    if chunk:
        command.send.is_chunk = True
    ours = encode.send(producer, sequence, count, len(payload), highest, chunk)
    assert ours + payload == b"".join(payload_frame(command, payload))


@given(
    U64,
    st.integers(-1, (1 << 31) - 1),
    st.lists(
        st.tuples(
            LONG,
            LONG,
            st.integers(0, (1 << 32) - 1),
            st.lists(LONG, max_size=20),
            st.none() | st.integers(0, (1 << 64) - 1),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_message_header_equals_protobuf(
    consumer: int, partition: int, entries: list[tuple[int, int, int, list[int], int | None]]
) -> None:
    header = encode.MessageHeader(consumer, partition)
    for ledger, entry, redelivery, ack_set, epoch in entries:
        command = BaseCommand(type=BaseCommand.MESSAGE)
        body = command.message
        body.consumer_id = consumer
        body.message_id.ledgerId = ledger % (1 << 64)
        body.message_id.entryId = entry % (1 << 64)
        body.message_id.partition = partition
        if redelivery:
            body.redelivery_count = redelivery
        body.ack_set.extend(ack_set)
        if epoch is not None:
            body.consumer_epoch = epoch
        ours = header.build(ledger, entry, 3, redelivery, ack_set, epoch)
        assert ours + b"abc" == b"".join(payload_frame(command, b"abc"))
        for near in (entry, entry, entry + 1, entry + 127, entry):
            for size in (3, 70_000):
                expected = header.build(ledger, near, size, epoch=epoch)
                assert header.plain(ledger, near, size, epoch) == expected


@given(LONG)
def test_varint_equals_protobuf(value: int) -> None:
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id = value % (1 << 64)
    command.flow.messagePermits = 0
    body = command.flow.SerializeToString()
    assert body == b"\x08" + encode.varint(value) + b"\x10\x00"


def test_incomplete_command_is_our_own_error() -> None:
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id = 1
    with pytest.raises(LocalProtocolError, match="incomplete"):
        encode.frame(command)
    with pytest.raises(LocalProtocolError, match="incomplete"):
        encode.framed(command.flow)
    with pytest.raises(LocalProtocolError, match="incomplete"):
        payload_frame(command, b"x")


MESSAGE_ID = MessageId(5, 6, 7, 8, 9, (-1, 3), MessageId(1, 2))
SCHEMA = Schema(name="s", schema_data=b"{}", type=Schema.String)
SAMPLES: dict[str, object] = {
    "topic": "persistent://public/default/t",
    "subscription": "s",
    "topics": ["t"],
    "new_topics": ["n"],
    "deleted_topics": ["d"],
    "schema": SCHEMA,
    "schema_version": b"\0\1",
    "code": ServerError.TopicNotFound,
    "error": ServerError.TopicNotFound,
    "message": "text",
    "txnid": (1, 2),
    "message_ids": [MESSAGE_ID],
    "message_id": MESSAGE_ID,
    "last": MESSAGE_ID,
    "mark_delete": MESSAGE_ID,
    "sub_type": CommandSubscribe.Key_Shared,
    "properties": {"k": 1},
    "metadata": {"k": "v"},
    "auth_data": b"token",
    "options": consuming.SubscribeOptions(
        consumer_name="c",
        start_message_id=MESSAGE_ID,
        start_message_rollback_s=5,
        schema=SCHEMA,
        metadata={"k": "v"},
        key_shared_meta=KeySharedMeta(keySharedMode=0),
    ),
    "original": connection.Original("who", "data", "token"),
}
FAMILIES: list[ModuleType] = [
    answers,
    connection,
    consuming,
    lookup,
    producing,
    schemas,
]


def builders() -> list[Callable[..., Any]]:
    return [
        function
        for family in FAMILIES
        for name, function in inspect.getmembers(family, inspect.isfunction)
        if function.__module__ == family.__name__ and not name.startswith("_")
    ]


def sample(parameter: inspect.Parameter, function: Callable[..., Any]) -> object:
    if function is lookup.lookup and parameter.name == "properties":
        return {"k": "v"}
    kind = str(parameter.annotation)
    if parameter.name in SAMPLES and kind != "int":
        return SAMPLES[parameter.name]
    if kind.startswith("str"):
        return "text"
    if kind.startswith("bool"):
        return True
    if kind.startswith("int"):
        return 3
    return parameter.default


@pytest.mark.parametrize("function", builders(), ids=lambda each: each.__name__)
@pytest.mark.parametrize("full", [False, True])
def test_every_builder_gives_one_sound_frame(function: Callable[..., Any], full: bool) -> None:
    arguments = {
        name: sample(parameter, function)
        for name, parameter in inspect.signature(function).parameters.items()
        if full or parameter.default is inspect.Parameter.empty
    }
    (only,) = ConnectionPair().exchange([function(**arguments)])
    assert only.error is None
    assert only.command.HasField(SUBMESSAGE[only.type])


def test_pair_answers_both_ways() -> None:
    pair = ConnectionPair()
    pair.client.write(connection.connect("test"), connection.PING)
    first, second = pair.broker.receive(chunk_bytes=5)
    assert (first.type, second.type) == (BaseCommand.CONNECT, BaseCommand.PING)
    pair.broker.write(connection.connected("test", max_message_size=1000))
    (answer,) = pair.client.receive()
    assert answer.command.connected.max_message_size == 1000


def test_full_message_id_survives() -> None:
    built = CommandSend(producer_id=1, sequence_id=2, txnid_most_bits=3, txnid_least_bits=4)
    MESSAGE_ID.to_wire(built.message_id)
    (only,) = FrameReader().feed(encode.framed(built))
    back = MessageId.from_wire(only.command.send.message_id)
    assert (back, back.ack_set, back.batch_size) == (MESSAGE_ID, (-1, 3), 9)
    assert back.first_chunk == MessageId(1, 2)
    assert (only.command.send.txnid_most_bits, only.command.send.txnid_least_bits) == (3, 4)

"""The head of message metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol import payload
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.payload import SMALL_BYTES_MAX, decode_head, parse_head
from geminga_protocol.pb.pulsar_api_pb2 import EncryptionKeys, KeyValue, MessageMetadata

UNREAD = ("properties", "replicate_to", "encryption_keys")
MANY = 600_000


@st.composite
def metadata(draw: st.DrawFn) -> MessageMetadata:
    """With any of the fields."""
    made = MessageMetadata(
        producer_name=draw(st.text(max_size=200)),
        sequence_id=draw(st.integers(0, (1 << 64) - 1)),
        publish_time=draw(st.integers(0, (1 << 64) - 1)),
    )
    values = {
        made.DESCRIPTOR.fields[0].TYPE_STRING: st.text(max_size=100),
        made.DESCRIPTOR.fields[0].TYPE_BYTES: st.binary(max_size=100),
        made.DESCRIPTOR.fields[0].TYPE_BOOL: st.booleans(),
        made.DESCRIPTOR.fields[0].TYPE_ENUM: st.integers(0, 4),
    }
    for field in made.DESCRIPTOR.fields:
        if field.name not in UNREAD and not made.HasField(field.name) and draw(st.booleans()):
            setattr(made, field.name, draw(values.get(field.type, st.integers(0, (1 << 31) - 1))))
    made.properties.extend(KeyValue(key="k", value="v" * 9) for _ in range(draw(st.integers(0, 9))))
    made.replicate_to.extend(draw(st.lists(st.text(max_size=5), max_size=3)))
    for _ in range(draw(st.integers(0, 2))):
        made.encryption_keys.add(key="name", value=b"secret", metadata=[KeyValue(key="", value="")])
    return made


@given(metadata())
def test_all_other_fields_are_those_of_the_whole(whole: MessageMetadata) -> None:
    encoded = whole.SerializeToString()
    head = decode_head(encoded)
    assert bool(head.encryption_keys) == bool(whole.encryption_keys)
    if len(encoded) <= SMALL_BYTES_MAX:
        assert head == whole
        return
    assert not head.properties
    assert not head.replicate_to
    assert list(head.encryption_keys) in ([], [EncryptionKeys(key="", value=b"")])
    for name in UNREAD:
        head.ClearField(name)
        whole.ClearField(name)
    assert head == whole


@pytest.mark.parametrize("field", UNREAD)
@pytest.mark.slow
def test_however_many_there_are_they_cost_little(field: str) -> None:
    """Read, they take 7 to 40 times as long, which holds up all others."""
    whole = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, partition_key="k")
    items = {
        "properties": KeyValue(key="a", value="b"),
        "replicate_to": "a",
        "encryption_keys": EncryptionKeys(key="a", value=b"b"),
    }
    getattr(whole, field).extend([items[field]] * MANY)
    entry = memoryview(payload.build(whole, b""))
    head = parse_head(entry)
    assert head.partition_key == "k"
    assert head.ByteSize() < 50
    enough_s = cpu_s(lambda: payload.parse_metadata(entry)) / 2
    assert cpu_s(lambda: parse_head(entry), enough_s) < enough_s


@pytest.mark.parametrize("fault", [b"\x00" * 200, b"\x32\xff\x01" + b"k" * 255])
def test_faults_are_those_of_the_whole(fault: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"can't be decoded|lacks producer_name"):
        decode_head(fault)


def test_text_that_is_not_utf_8_stays_bytes() -> None:
    whole = MessageMetadata(producer_name="p" * 200, sequence_id=1, publish_time=2)
    head = decode_head(whole.SerializeToString() + b"\x32\x01\xff")
    assert head.partition_key == payload.decode_metadata(head.SerializeToString()).partition_key
    assert head.partition_key == b"\xff"  # type: ignore[comparison-overlap]  # as `messages.text` says

"""Hand-written encoders equal protobuf."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.encode import send
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata
from geminga_protocol.single import SendHeader

U64 = st.integers(0, (1 << 64) - 1)
MESSAGES = st.lists(st.tuples(U64, st.integers(0, 3), st.binary(max_size=300)), max_size=5)


@given(U64, st.text(max_size=31), U64, MESSAGES)
def test_send_header(
    producer_id: int, name: str, time_ms: int, messages: list[tuple[int, int, bytes]]
) -> None:
    header = SendHeader(producer_id, name.encode())
    for sequence_id, later_ms, payload in messages:
        at_ms = (time_ms + later_ms) % (1 << 64)
        metadata = MessageMetadata(
            producer_name=name,
            sequence_id=sequence_id,
            publish_time=at_ms,
            uncompressed_size=len(payload),
        )
        body = build(metadata, payload)
        front = header.build(sequence_id, at_ms, payload)
        assert front + payload == send(producer_id, sequence_id, 1, len(body)) + body

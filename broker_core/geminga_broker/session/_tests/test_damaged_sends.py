"""A SEND that was damaged on its way is refused alone, and never stored (BR-20)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.wire import Type, message, open_broker
from geminga_protocol.ids import EARLIEST
from geminga_protocol.payload import split
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/damaged"


def flipped(frame: bytes, at: int = -1) -> bytes:
    """A frame with one bit of its message changed."""
    damaged = bytearray(frame)
    damaged[at] ^= 1
    return bytes(damaged)


@pytest.mark.parametrize("damaged", [0, 1, 4, 9])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("at", [-1, -6])
async def test_a_damaged_message_is_refused_alone(damaged: int, joined: bool, at: int) -> None:
    """Whether it comes by itself or among others in one read."""
    frames = [message(number, b"message %d" % number) for number in range(10)]
    frames[damaged] = flipped(frames[damaged], at)
    async with open_broker() as broker:
        client = broker.client()
        await client.connect()
        await client.open_producer(TOPIC)
        answers: dict[int, int] = {}
        for group in [frames] if joined else [[frame] for frame in frames]:
            await client.send(*group)
            while len(answers) < (10 if joined else frames.index(group[0]) + 1):
                frame = await client.next()
                assert frame is not None
                if frame.type == Type.SEND_ERROR:
                    error = frame.command.send_error
                    assert error.error == ServerError.ChecksumError
                    answers[error.sequence_id] = -1
                else:
                    receipt = frame.command.send_receipt
                    answers[receipt.sequence_id] = receipt.message_id.entryId
        assert [number for number, entry in answers.items() if entry < 0] == [damaged]
        topic = broker.service.topics.loaded[TOPIC]
        reader = topic.log.open_reader("r", EARLIEST)
        found = await reader.read(entries_max=100, bytes_max=1 << 20)
        texts = [bytes(split(entry.data).payload) for entry in found]
        assert texts == [b"message %d" % number for number in range(10) if number != damaged]

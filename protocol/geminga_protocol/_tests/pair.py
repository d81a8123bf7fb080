"""Two ends of a connection without a network."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from geminga_protocol.buffers import Buffer
from geminga_protocol.encode import frame
from geminga_protocol.frames import Frame, FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand


class End:
    """One end: written bytes wait until the other end reads."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        self.sent = bytearray()
        self._other: End | None = None

    def write(self, *buffers: Buffer) -> None:
        """Queue bytes for the other end."""
        for buffer in buffers:
            self.sent += buffer

    def receive(self, chunk_bytes: int = 1 << 18) -> list[Frame]:
        """The other end's frames, read in chunks of that size."""
        assert self._other is not None
        data = bytes(self._other.sent)
        self._other.sent.clear()
        frames: list[Frame] = []
        for at in range(0, len(data), chunk_bytes):
            frames += self.reader.feed(data[at : at + chunk_bytes])
        return frames


class ConnectionPair:
    """A client's and a broker's end, joined."""

    def __init__(self) -> None:
        self.client = End()
        self.broker = End()
        self.client._other = self.broker
        self.broker._other = self.client

    def exchange(self, requests: Iterable[bytes]) -> list[Frame]:
        """Write the client's requests; returns them as the broker's end reads them."""
        self.client.write(*requests)
        return self.broker.receive()


def payload_frame(command: BaseCommand, headers_and_payload: Buffer) -> list[Buffer]:
    """Buffers of a frame with headers and payload after the command."""
    size, rest = len(frame(command)) - 8, memoryview(headers_and_payload).nbytes
    return [struct.pack(">II", size + 4 + rest, size) + frame(command)[8:], headers_and_payload]

"""An outbox by itself."""

from __future__ import annotations

from geminga._connection.core import MemoryLimit
from geminga._entries.encode import Encoder, Extras
from geminga._producing.outbox import Outbox
from geminga._producing.receipt import Outgoing, Receipt
from geminga.options import ProducerOptions
from geminga_protocol.frames import FrameReader
from geminga_protocol.payload import parse_metadata, verify_checksum

NOWHERE = (1 << 64) - 1


class Desk:
    """An outbox with a clock, and its sent frames."""

    def __init__(self, held: bool = False, **options: object) -> None:
        self.now_s = 100.0
        self.memory = MemoryLimit(1000)
        self.settled: list[Outgoing] = []
        self.encoder = Encoder(3, "t", ProducerOptions(), lambda: 42)
        self.encoder.producer_name = "p"
        self.box = Outbox(
            ProducerOptions(**options),
            self.encoder,
            lambda: self.now_s,
            lambda run, messages, size_bytes: self.settled.extend(run),
            self.memory,
        )
        if not held:
            self.box.begin(-1)

    def add(self, *sizes: int, extras: Extras | None = None) -> list[Receipt]:
        return [self.box.add(b"x" * size, extras, None) for size in sizes]

    def sent(self) -> list[tuple[int, int, int]]:
        """(sequence id, highest, messages) of sent frames, decoded from the bytes."""
        found = []
        reader = FrameReader()
        for outgoing in self.box.take_unsent():
            (frame,) = reader.feed(b"".join(outgoing.frame))
            assert frame.payload is not None
            assert verify_checksum(frame.payload)
            metadata = parse_metadata(frame.payload)
            send = frame.command.send
            assert send.num_messages == metadata.num_messages_in_batch
            assert metadata.publish_time == 42
            found.append((send.sequence_id, send.highest_sequence_id, send.num_messages))
        return found

"""An outbox with one open batch per key (spec SDK-04; BatchMessageKeyBasedContainer of the Java
client), so that a Key_Shared subscription can dispatch whole batches. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminga._entries.encode import Encoder, Extras
from geminga._producing.joining import Memory
from geminga._producing.outbox import Outbox, Placed
from geminga._producing.receipt import Outgoing, Receipt
from geminga.options import ProducerOptions

Key = bytes | str | None


class KeyedOutbox(Outbox):
    """Limits apply to all open batches together, and all are sealed together.

    Sequence ids of such batches interleave. Each batch has its highest one only, and they are sent
    in that order, so that a broker's last sequence id covers all before it: deduplication holds.
    """

    def __init__(
        self,
        options: ProducerOptions,
        encoder: Encoder,
        clock: Callable[[], float],
        settled: Callable[[Sequence[Outgoing], int, int], None],
        memory: Memory,
    ) -> None:
        super().__init__(options, encoder, clock, settled, memory)
        self._open: dict[Key, Outgoing] = {}
        self._open_messages = 0
        self._open_bytes = 0

    def _add(self, data: bytes, extras: Extras | None, sequence_id: int, batched: bool) -> Receipt:
        size_bytes = len(data)
        if self._open and (not batched or self._open_bytes + size_bytes > self._bytes_max):
            self.seal()
        key = _key_of(extras)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = Outgoing(self._clock())
            if self.open_batch is None:
                self.open_batch = batch
        index = batch.add(sequence_id, data, extras, size_bytes)
        self._open_messages += 1
        self._open_bytes += size_bytes
        if (
            not batched
            or self._open_messages >= self._messages_max
            or self._open_bytes >= self._bytes_max
        ):
            self.seal()
        return Receipt(batch, index)

    def add_run(self, payloads: Sequence[bytes]) -> list[Placed]:
        """None: each goes to the batch of its key."""
        return []

    def _open_batches(self) -> list[Outgoing]:
        return list(self._open.values())

    def _take_open(self) -> list[Outgoing]:
        batches = sorted(self._open.values(), key=_highest)
        self._open = {}
        self._open_messages = self._open_bytes = 0
        self.open_batch = None
        for batch in batches:
            if batch.count > 1:
                batch.itemized()
            batch.sequence_id = batch.highest_sequence_id
        return batches


def _highest(batch: Outgoing) -> int:
    return batch.highest_sequence_id


def _key_of(extras: Extras | None) -> Key:
    if extras is None:
        return None
    return extras.partition_key if extras.ordering_key is None else extras.ordering_key

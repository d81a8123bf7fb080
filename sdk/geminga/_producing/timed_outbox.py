"""Outboxes whose sends are measured (spec SDK-49; the latencies of ProducerImpl's metrics)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from geminga._entries.encode import Encoder
from geminga._producing.joining import Memory
from geminga._producing.keyed_outbox import KeyedOutbox
from geminga._producing.outbox import Outbox
from geminga._producing.receipt import Outgoing
from geminga.options import ProducerOptions


class SendTimer(Protocol):
    """What records them."""

    def messages(self, latency_s: float, count: int, *, failed: bool) -> None:
        """An entry's messages are settled, so long after the first one was queued."""

    def rpc(self, latency_s: float, *, failed: bool) -> None:
        """An entry is settled, so long after it was first written."""


class TimedOutbox(Outbox):
    """An outbox that knows when its frames were first sent; `timer` is set before any is."""

    timer: SendTimer

    def __init__(
        self,
        options: ProducerOptions,
        encoder: Encoder,
        clock: Callable[[], float],
        settled: Callable[[Sequence[Outgoing], int, int], None],
        memory: Memory,
    ) -> None:
        super().__init__(options, encoder, clock, self._record, memory)
        self._then = settled
        self._sent_s: dict[int, float] = {}
        """By identity, of the frames in flight."""

    def take_unsent(self) -> list[Outgoing]:
        """As Outbox.take_unsent."""
        unsent = super().take_unsent()
        now_s = self._clock()
        for each in unsent:
            self._sent_s.setdefault(id(each), now_s)
        return unsent

    def _record(self, run: Sequence[Outgoing], messages: int, size_bytes: int) -> None:
        now_s = self._clock()
        failed = run[0].error is not None
        for each in run:
            self.timer.messages(now_s - each.created_s, each.count, failed=failed)
            sent_s = self._sent_s.pop(id(each), None)
            if sent_s is not None:
                self.timer.rpc(now_s - sent_s, failed=failed)
        self._then(run, messages, size_bytes)


class TimedKeyedOutbox(TimedOutbox, KeyedOutbox):
    """The same with one open batch per key."""

"""A frame on its way to the broker, and what its senders hold of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import trio

from geminga._entries.encode import Extras, Item
from geminga.errors import GemingaError, InvalidStateError
from geminga_protocol.buffers import Buffer
from geminga_protocol.message_id import MessageId, signed
from geminga_runtime.waiters import own_copy

logger = logging.getLogger("geminga")


class Outgoing(msgspec.Struct, eq=False, gc=False):
    """One entry to be: the messages of a batch, or a single one.

    While open it collects; `frame` is what goes on the wire once it is sealed. Python's collector
    needn't look at it: what could lead back to it is let go when it is settled, as all are.
    """

    created_s: float
    payloads: list[bytes] = []
    """Those of its messages, while they have nothing else and their sequence ids count up."""
    items: list[Item] | None = None
    """Its messages otherwise."""
    count: int = 0
    size_bytes: int = 0
    sequence_id: int = 0
    highest_sequence_id: int = 0
    frame: tuple[Buffer, Buffer] = (b"", b"")
    partition: int = -1
    ledger_id: int = -1
    entry_id: int = -1
    first_chunk: tuple[int, int] | None = None
    """Ledger and entry of the message's first chunk, if it went in several."""
    is_settled: bool = False
    error: GemingaError | None = None
    _event: trio.Event | None = None
    _callbacks: list[Callable[[], object]] | None = None

    def add(self, sequence_id: int, data: bytes, extras: Extras | None, size_bytes: int) -> int:
        """Take a message; returns its index."""
        index = self.count
        if not index:
            self.sequence_id = sequence_id
        if extras is None and self.takes(sequence_id):
            self.payloads.append(data)
        else:
            self.itemized().append((sequence_id, data, extras))
        self.highest_sequence_id = sequence_id
        self.count = index + 1
        self.size_bytes += size_bytes
        return index

    def takes(self, sequence_id: int) -> bool:
        """Whether a message with nothing but a payload may be added to `payloads`."""
        return self.items is None and sequence_id == self.sequence_id + self.count

    def add_run(self, sequence_id: int, payloads: Sequence[bytes], size_bytes: int) -> None:
        """Take messages with nothing but a payload, whose sequence ids count up."""
        if not self.count:
            self.sequence_id = sequence_id
        if self.takes(sequence_id):
            self.payloads += payloads
        else:
            self.itemized().extend((sequence_id + n, each, None) for n, each in enumerate(payloads))
        self.highest_sequence_id = sequence_id + len(payloads) - 1
        self.count += len(payloads)
        self.size_bytes += size_bytes

    def itemized(self) -> list[Item]:
        """Its messages one by one, from now on."""
        items = self.items
        if items is None:
            first = self.sequence_id
            items = self.items = []
            items += [(first + n, data, None) for n, data in enumerate(self.payloads)]
            self.payloads = []
        return items

    def shift(self, by: int) -> None:
        """Raise all sequence ids; only before it is encoded."""
        if by:
            self.sequence_id += by
            self.highest_sequence_id += by
            if self.items is not None:
                self.items = [(number + by, data, extras) for number, data, extras in self.items]

    def settle(self, error: GemingaError | None) -> None:
        """Tell everybody who waits; the payloads are let go."""
        assert not self.is_settled
        self.is_settled = True
        self.error = error
        self.payloads = []
        self.items = None
        self.frame = (b"", b"")
        if self._event is not None:
            self._event.set()
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                _call(callback)

    def forget_tasks(self) -> None:
        """No task waits for it any more: their loop has ended."""
        self._event = None

    async def wait(self) -> None:
        """Until it is settled."""
        if self.is_settled:
            await trio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()

    def on_settled(self, callback: Callable[[], object]) -> None:
        """Have `callback` called once it is settled, at once if it is."""
        if self.is_settled:
            _call(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)


def first_failure(failed: list[Outgoing]) -> GemingaError:
    """The error of the oldest of these, which tells how many messages failed."""
    first = min(failed, key=lambda each: each.created_s)
    assert first.error is not None
    error = own_copy(first.error)
    count = sum(each.count for each in failed)
    if count > 1:
        error.args = (f"{count} messages failed, the first one with: {error.args[0]}",)
    return error


class LeadingChunk(Outgoing, eq=False, gc=False):
    """A chunk of a large message, all but the last: `whole` is the last one, which has the receipt.

    It counts as no message, and has no bytes of its own. Confirmed is the message with its last
    chunk only, so its highest sequence id is none.
    """

    whole: Outgoing | None = None


def leading_chunk(whole: Outgoing, frame: tuple[Buffer, Buffer]) -> LeadingChunk:
    """A chunk of that message."""
    return LeadingChunk(
        whole.created_s,
        frame=frame,
        partition=whole.partition,
        sequence_id=whole.sequence_id,
        highest_sequence_id=-1,
        whole=whole,
    )


class Receipt(msgspec.Struct, eq=False, gc=False):
    """A message that was handed over for sending; made by `submit` and `send_nowait`."""

    _outgoing: Outgoing
    _index: int

    def __repr__(self) -> str:
        if not self._outgoing.is_settled:
            return "<Receipt pending>"
        return f"<Receipt {self._outgoing.error or self.message_id!r}>"

    @property
    def is_done(self) -> bool:
        """Whether the broker has answered, or the message has failed."""
        return self._outgoing.is_settled

    @property
    def error(self) -> GemingaError | None:
        """Why the message failed, None if it didn't (yet)."""
        return self._outgoing.error

    @property
    def message_id(self) -> MessageId:
        """The message's id; raises what it failed with, and InvalidStateError while it is pending.

        Ledger and entry are -1 if the broker had the message already, by its sequence id.
        """
        outgoing = self._outgoing
        if not outgoing.is_settled:
            raise InvalidStateError("the message is still pending: wait() first")
        if outgoing.error is not None:
            raise own_copy(outgoing.error)
        ledger_id, entry_id = signed(outgoing.ledger_id), signed(outgoing.entry_id)
        partition = outgoing.partition
        if outgoing.count > 1:
            return MessageId(ledger_id, entry_id, partition, self._index, outgoing.count)
        if outgoing.first_chunk is None:
            return MessageId(ledger_id, entry_id, partition)
        first_ledger_id, first_entry_id = outgoing.first_chunk
        first = MessageId(signed(first_ledger_id), signed(first_entry_id), partition)
        return MessageId(ledger_id, entry_id, partition, first_chunk=first)

    async def wait(self) -> MessageId:
        """The message's id once the broker has stored it; raises what it failed with.

        Cancelling this doesn't take the message back.
        """
        await self._outgoing.wait()
        return self.message_id

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback(receipt)` in the event loop when it is done; at once if it is.

        The callback must be short and must not raise; what it raises is logged.
        """
        self._outgoing.on_settled(partial(callback, self))


def place_of(receipt: Receipt) -> tuple[Outgoing, int]:
    """The frame that a message is in, and its index there."""
    return receipt._outgoing, receipt._index


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("a callback of a sent message failed")

"""A pending frame, and the receipts of its messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import trio

from geminga._entries.encode import Extras, Item
from geminga._options.callbacks import FAILURES
from geminga.errors import GemingaError, InvalidStateError
from geminga_protocol.buffers import Buffer
from geminga_protocol.message_id import MessageId, signed
from geminga_runtime.waiters import own_copy

logger = logging.getLogger("geminga")


class Outgoing(msgspec.Struct, eq=False, gc=False):
    """An entry to be sent: the messages of a batch, or a single one.

    While open it collects messages; once sealed, `frame` has its bytes. Python's garbage collector
    ignores it: references that might form a cycle are dropped when it is settled, as all are.
    """

    created_s: float
    payloads: list[bytes] = []
    """Its messages while they have payloads only, and consecutive sequence ids."""
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
    """Ledger and entry of the message's first chunk, if it is chunked."""
    is_settled: bool = False
    error: GemingaError | None = None
    _event: trio.Event | None = None
    _callbacks: list[Callable[[], object]] | None = None

    def add(self, sequence_id: int, data: bytes, extras: Extras | None, size_bytes: int) -> int:
        """Add a message; returns its index."""
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
        """Whether a message with a payload only may be added to `payloads`."""
        return self.items is None and sequence_id == self.sequence_id + self.count

    def add_run(self, sequence_id: int, payloads: Sequence[bytes], size_bytes: int) -> None:
        """Add messages with payloads only, and consecutive sequence ids."""
        if not self.count:
            self.sequence_id = sequence_id
        if self.takes(sequence_id):
            self.payloads += payloads
        else:
            self.itemized().extend((sequence_id + n, each, None) for n, each in enumerate(payloads))
        self.highest_sequence_id = sequence_id + len(payloads) - 1
        self.count += len(payloads)
        self.size_bytes += size_bytes

    def joined(self, count: int, size_bytes: int) -> None:
        """Count messages that were put into `payloads` before."""
        self.highest_sequence_id += count
        self.count += count
        self.size_bytes += size_bytes

    def itemized(self) -> list[Item]:
        """Its messages as `items`, from now on."""
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
        """Set the result, call waiters and callbacks, and release the payloads."""
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
        """Forget waiting tasks: their loop has ended."""
        self._event = None

    async def wait(self) -> None:
        """Wait until it is settled."""
        if self.is_settled:
            await trio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()

    def on_settled(self, callback: Callable[[], object]) -> None:
        """Call `callback` when it is settled, or now if it already is."""
        if self.is_settled:
            _call(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)


def first_failure(failed: list[Outgoing]) -> GemingaError:
    """The error of the oldest of these, with the number of failed messages."""
    first = min(failed, key=lambda each: each.created_s)
    assert first.error is not None
    error = own_copy(first.error)
    count = sum(each.count for each in failed)
    if count > 1:
        error.args = (f"{count} messages failed, the first one with: {error.args[0]}",)
    return error


class LeadingChunk(Outgoing, eq=False, gc=False):
    """A chunk of a large message, except the last one, `whole`, which has the receipt.

    It has no messages and bytes of its own. The message is confirmed with its last chunk, so this
    one has no highest sequence id.
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
    """The receipt of a submitted message; created by `submit` and `send_nowait`."""

    _outgoing: Outgoing
    _index: int

    def __repr__(self) -> str:
        if not self._outgoing.is_settled:
            return "<Receipt pending>"
        return f"<Receipt {self._outgoing.error or self.message_id!r}>"

    @property
    def is_done(self) -> bool:
        """Whether the message has its receipt, or has failed."""
        return self._outgoing.is_settled

    @property
    def error(self) -> GemingaError | None:
        """The error of a failed message, else None."""
        return self._outgoing.error

    @property
    def message_id(self) -> MessageId:
        """The message's id; raises its error, or InvalidStateError while it is pending.

        Ledger and entry are -1 for a duplicate, which the broker had already by its sequence id.
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
        """Wait until the broker has stored the message; returns its id, or raises its error.

        A cancelled wait doesn't withdraw the message.
        """
        await self._outgoing.wait()
        return self.message_id

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback(receipt)` in the event loop when it is done, or now if it already is.

        The callback must be short and must not raise; an error is logged.
        """
        self._outgoing.on_settled(partial(callback, self))


def place_of(receipt: Receipt) -> tuple[Outgoing, int]:
    """The message's frame, and its index there."""
    return receipt._outgoing, receipt._index


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except FAILURES:
        logger.exception("a callback of a sent message failed")

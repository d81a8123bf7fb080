"""A message on its way from the program to the loop that sends it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from geminga._bridge.calls import ClientSession
from geminga._entries.encode import Extras
from geminga._producing.receipt import Outgoing, Receipt
from geminga.errors import GemingaError, InvalidStateError
from geminga_protocol.message_id import MessageId
from geminga_runtime.waiters import own_copy

Details = tuple[Extras | None, int | None]
"""A message's options, and its sequence id."""
NO_DETAILS: Details = (None, None)


class Handed(msgspec.Struct, eq=False, gc=False):
    """A queued message: a receipt that later refers to the loop's receipt. Created in the program's
    thread, completed in the loop; every one is completed in the end.
    """

    session: ClientSession
    data: bytes
    details: Details | None
    _index: int = 0
    _outgoing: Outgoing | None = None
    """Its place in the Trio producer."""
    _failure: GemingaError | None = None
    _waiting: list[Callable[[], object]] | None = None
    """Callbacks to be registered when it has a place."""

    def __repr__(self) -> str:
        if not self.is_done:
            return "<Receipt pending>"
        return f"<Receipt {self.error or self.message_id!r}>"

    @property
    def is_done(self) -> bool:
        """Whether the message has its receipt, or has failed."""
        outgoing = self._outgoing
        return self._failure is not None if outgoing is None else outgoing.is_settled

    @property
    def error(self) -> GemingaError | None:
        """The error of a failed message, else None."""
        outgoing = self._outgoing
        return self._failure if outgoing is None else outgoing.error

    @property
    def message_id(self) -> MessageId:
        """The message's id; raises its error, or InvalidStateError while it is pending."""
        if self._outgoing is not None:
            return Receipt(self._outgoing, self._index).message_id
        if self._failure is not None:
            raise own_copy(self._failure)
        raise InvalidStateError("the message is still pending: wait() first")

    def place(self, outgoing: Outgoing, index: int) -> None:
        """Set its place in the Trio producer."""
        self._index = index
        self._outgoing = outgoing
        self.data = b""
        if self._waiting is not None:
            self._tell()

    def refuse(self, error: GemingaError) -> None:
        """Set the error of a message that can't be sent."""
        self._failure = error
        self.data = b""
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for callback in waiting:
            self.on_done(callback)

    def on_done(self, callback: Callable[[], object]) -> None:
        """Let the loop call `callback` when it is done. Call this in the loop, or before the
        message is queued.
        """
        if self._outgoing is not None:
            self._outgoing.on_settled(callback)
        elif self._failure is not None:
            callback()
        elif self._waiting is None:
            self._waiting = [callback]
        else:
            self._waiting.append(callback)

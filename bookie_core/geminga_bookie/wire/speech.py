"""What a session asks of a version of the protocol: requests in, answers out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import BookiePort
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import AuthMessage, StatusCode


@dataclass
class Add:
    """Neighbouring requests to add entries of one ledger. A tag is what an answer needs to be told
    from others.
    """

    ledger_id: int
    master_key: bytes
    first_entry_id: int
    recovery: bool
    packets: list[bytes] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)

    def takes(self, ledger_id: int, master_key: bytes, entry_id: int, recovery: bool) -> bool:
        """Whether an add is the next of these."""
        return (
            entry_id == self.first_entry_id + len(self.packets)
            and ledger_id == self.ledger_id
            and master_key == self.master_key
            and recovery == self.recovery
        )


@dataclass
class Read:
    """Neighbouring requests to read entries of one ledger."""

    ledger_id: int
    first_entry_id: int
    tags: list[int] = field(default_factory=list)

    def takes(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a read is the next of these."""
        return ledger_id == self.ledger_id and entry_id == self.first_entry_id + len(self.tags)


PARSED_AT_ONCE = 256
"""Frames that are parsed before others get their turn."""
FOUND_AT_ONCE = 16
"""Requests that begin before others get their turn, neighbours counted as one."""


class WaitFor(NamedTuple):
    """What a read waits for: a higher LAC than it knows."""

    ledger_id: int
    previous_lac: int
    timeout_s: float


class Aside(ABC):
    """Any other request."""

    name = ""
    """Of its metrics; empty: it isn't counted."""
    status: StatusCode = StatusCode.EOK
    """What it was answered with."""
    asks_last = False
    """Whether it reads the last entry, whichever that is."""
    wait: WaitFor | None = None
    """If it waits for an entry to come."""
    starts_tls = False
    """Whether it asks for TLS."""
    auth: AuthMessage | None = None
    """If it is an authentication message."""

    @abstractmethod
    async def serve(self, bookie: BookiePort, wait_s: float) -> Iterable[Buffer]:
        """The frames to answer; one that waits for an entry does so for `wait_s`. Raises nothing of
        a bookie's errors.
        """

    def accept_tls(self) -> Iterable[Buffer]:
        """The answer behind which the handshake begins, to a request that asks for TLS."""
        return []

    @abstractmethod
    def refuse(self) -> Iterable[Buffer]:
        """The answer ETOOMANYREQUESTS."""

    @abstractmethod
    def deny(self) -> Iterable[Buffer]:
        """The answer EUA; none if the connection is to be closed instead."""

    @abstractmethod
    def answer_auth(self, plugin_name: str, payload: bytes) -> Iterable[Buffer]:
        """The answer to an authentication message."""


class Speech(ABC):
    """A version of the protocol on one connection."""

    @abstractmethod
    def requests(
        self, buffer: bytes, bounds: Sequence[int], at: int = 0
    ) -> tuple[Sequence[Add | Read | Aside], int]:
        """The requests of frames from number `at` on, in order, neighbours joined, as many as are
        parsed in some milliseconds; and the number of the first frame behind them. Raises
        WireError.
        """

    @abstractmethod
    def add_answers(
        self, ledger_id: int, first_entry_id: int, tags: Sequence[int],
        error: BookkeeperError | None,
    ) -> bytes:  # fmt: skip
        """The same answer to consecutive adds."""

    @abstractmethod
    def read_answers(
        self, ledger_id: int, first_entry_id: int, tags: Sequence[int], packets: Sequence[bytes]
    ) -> list[Buffer]:
        """Answers to consecutive reads."""

    @abstractmethod
    def read_failed(
        self, ledger_id: int, entry_id: int, tag: int, error: BookkeeperError
    ) -> list[Buffer]:
        """The answer to a read that failed."""

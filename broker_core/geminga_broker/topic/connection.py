"""What topics know of a client's connection; the session is behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from geminga_protocol.buffers import Buffer


class ClientConnection(Protocol):
    """One client's connection, as producers and consumers use it. Everything is synchronous."""

    @property
    def address(self) -> str:
        """The peer, `host:port`."""

    @property
    def client_version(self) -> str:
        """As announced in CONNECT."""

    @property
    def protocol_version(self) -> int:
        """Lower of the client's and ours."""

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether entries may go out with their broker entry metadata (PIP-90)."""

    @property
    def principal(self) -> str | None:
        """Role of the client, None without authentication."""

    @property
    def writable(self) -> bool:
        """Whether less than the high mark waits to be sent. A dispatch round starts only then."""

    def write(self, *buffers: Buffer) -> None:
        """Queue whole frames. Never blocks; does nothing once the connection is closed."""

    def write_now(self, *buffers: Buffer) -> None:
        """The same, with the kernel at once if nothing waits before them: for what a client waits
        for alone.
        """

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call once when what waits falls under the low mark; at once if it is `writable`, or
        closed.
        """

    async def is_alive(self) -> bool:
        """Ask the peer, and wait for its answer for a while; a peer that gives none is given up."""

    def drop_producer(self, producer_id: int) -> None:
        """The broker closed this producer: send CLOSE_PRODUCER and forget it."""

    def drop_consumer(self, consumer_id: int) -> None:
        """The broker closed this consumer: send CLOSE_CONSUMER and forget it."""

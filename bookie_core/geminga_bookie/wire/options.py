"""Settings of a connection to a bookie."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_bookie.wire.auth import ClientAuth
from geminga_protocol.bookkeeper.framing import FRAME_BYTES_MAX_DEFAULT
from geminga_runtime.tls import TlsContexts

MiB = 1024 * 1024


@dataclass(frozen=True)
class RemoteOptions:
    """Settings of a client's connection to one bookie."""

    connect_timeout_s: float = 10.0
    add_timeout_s: float = 5.0
    """From the call of `add` to the answer (Apache's addEntryTimeoutSec)."""
    read_timeout_s: float = 5.0
    """Of each request but adds (Apache's readEntryTimeoutSec)."""
    long_poll_s: float = 1.0
    """Time that the bookie holds one request to wait for an entry; `wait_entry` repeats it. Until
    then Apache's bookies may forget a request that waits for more than the next entry.
    """
    backoff_s: float = 0.1
    """After a failed attempt to connect, requests fail at once for this long; doubled by each
    further one, up to `backoff_max_s`.
    """
    backoff_max_s: float = 10.0
    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
    """Bound of frames of both sides (Apache's nettyMaxFrameSizeBytes)."""
    unanswered_bytes_max: int = 64 * MiB
    """Bytes of adds that were sent and are not answered, if more than one add is."""
    unanswered_entries_max: int = 50_000
    queued_bytes_max: int = 64 * MiB
    """Bytes of adds that wait until they may be sent; above it adds fail with TooManyRequests."""
    queued_entries_max: int = 50_000
    requests_max: int = 10_000
    """Requests but adds that are not answered; above it they fail with TooManyRequests."""
    adds_by_v2: bool = False
    """Entries that a writer adds go by version 2 of the protocol, on a connection of their own
    (`bookkeeperUseV2WireProtocol`): cheaper for Apache's bookies. Not with TLS or authentication,
    which are of version 3.
    """
    tls: TlsContexts | None = None
    """For start-TLS, by which every connection then begins."""
    auth: ClientAuth | None = None
    """For authentication, behind TLS if there is any."""

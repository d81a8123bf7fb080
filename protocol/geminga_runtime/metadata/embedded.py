"""What the stores in this process have beside `MetadataStore`: further sessions, and listeners."""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from geminga_runtime.metadata.api import MetadataStore, Notification, Write

Heard = Callable[[Sequence[Notification]], None]
"""Gets changes in the loop, before whoever made them has an answer. Short; doesn't raise."""


class EmbeddedStore(MetadataStore, Protocol):
    """A store whose nodes are in this process."""

    def another_session(self) -> EmbeddedStore:
        """A session on the same nodes, with ephemeral nodes of its own. Its `aclose` raises
        StoreUnavailable while these can't be deleted; it may be called again then. It can't be
        used after the first session is closed.
        """

    def listen(self, heard: Heard) -> AbstractContextManager[None]:
        """Pass all changes on while the context is open, by whichever session they are."""

    async def put_all(self, writes: Sequence[Write]) -> Sequence[int]:
        """Make all these writes, of different nodes, or none; returns the new versions. Raises as
        `put_numbered`.
        """

    async def next_number(self, parent: str) -> int:
        """The lowest number that the next sequential child of a node may get: all that were given
        out are lower. Raises as `get`.
        """

    async def skip_numbers(self, parent: str, number: int) -> None:
        """Let the next sequential child of a node, which is made if absent, have that number at
        least. Raises as `put`.
        """


class Listeners:
    """Who gets the changes of an embedded store."""

    def __init__(self) -> None:
        self._heard: list[Heard] = []

    @contextmanager
    def listen(self, heard: Heard) -> Iterator[None]:
        """See `EmbeddedStore.listen`."""
        self._heard.append(heard)
        try:
            yield
        finally:
            self._heard.remove(heard)

    def publish(self, notifications: Sequence[Notification]) -> None:
        """Tell all of them."""
        for heard in tuple(self._heard):
            heard(notifications)

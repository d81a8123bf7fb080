"""Breaks that the simulation must find: each is put into the running code, never into its files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from unittest import mock

from geminga._acknowledging.acks import AckGroup, AckTracker
from geminga._producing.outbox import Outbox
from geminga._producing.receipt import Outgoing
from geminga_bookie._tests import power_canaries
from geminga_bookie.port import AddDone
from geminga_broker.log.cursor import LogCursor
from geminga_broker.topic.api import PublishItem
from geminga_broker.topic.deduplication import Deduplication
from geminga_broker.topic.publish_run import Sent
from geminga_runtime.metadata.tree import Row

from .disk import BookieDoor, MetadataDoor
from .run import run_seed


@contextmanager
def _early_receipts() -> Iterator[None]:
    """Entries count as stored before they are written."""
    add = BookieDoor.add

    def early(
        self: BookieDoor,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        def later(first: int, count: int, error: object) -> None:
            """It was told already."""

        add(self, ledger_id, master_key, first_entry_id, packets, later, recovery=recovery)
        self._nursery.start_soon(_tell, done, first_entry_id, len(packets))

    async def _tell(done: AddDone, first: int, count: int) -> None:
        done(first, count, None)

    with mock.patch.object(BookieDoor, "add", early):
        yield


@contextmanager
def _pending_is_dropped() -> Iterator[None]:
    """An SDK that takes what was in flight when the connection was lost for stored."""

    def dropping(self: Outbox) -> list[Outgoing]:
        pending = list(self._window)
        self._window.clear()
        self.unsent = []
        for each in pending:
            self._settle(each, None)
        return []

    with mock.patch.object(Outbox, "resend", dropping):
        yield


@contextmanager
def _no_deduplication() -> Iterator[None]:
    """A broker that stores again what it has."""

    def take(self: Deduplication, name: str, item: PublishItem) -> Sent:
        return item.sequence_id, item.highest_sequence_id, len(item.payload)

    with mock.patch.object(Deduplication, "take", take):
        yield


@contextmanager
def _acknowledges_too_much() -> Iterator[None]:
    """An SDK that acknowledges the entry after the one that a program is done with."""
    take = AckTracker.take

    def more(self: AckTracker, ids_max: int = 1000) -> list[AckGroup]:
        return [
            AckGroup(
                each.cumulative, [(ledger, entry + 1, left) for ledger, entry, left in each.ids]
            )
            for each in take(self, ids_max)
        ]

    with mock.patch.object(AckTracker, "take", more):
        yield


@contextmanager
def _rewinds_too_little() -> Iterator[None]:
    """A broker whose cursor goes on behind what was delivered when a consumer comes back."""

    def nothing(self: LogCursor) -> None:
        """What was sent and not acknowledged is not read again."""

    with mock.patch.object(LogCursor, "rewind", nothing):
        yield


@contextmanager
def _metadata_not_synced() -> Iterator[None]:
    """A metadata store whose commits are answered at once, and of which each fifth is synced."""
    count = 0
    synced: dict[int, tuple[dict[str, Row], dict[str, dict[str, None]]]] = {}

    async def commit(self: MetadataDoor, change: Callable[[], object]) -> object:
        nonlocal count
        await self._enter()
        result = change()
        count += 1
        if count % 5 == 0:
            rows = self._session._rows
            synced[id(rows)] = copy.deepcopy((rows._rows, rows._children))
        return result

    def close(self: MetadataDoor) -> None:
        self.is_closed = True
        rows = self._session._rows
        if id(rows) in synced:
            rows._rows, rows._children = copy.deepcopy(synced[id(rows)])
        self._session.expire_session()

    with (
        mock.patch.object(MetadataDoor, "_commit", commit),
        mock.patch.object(MetadataDoor, "close", close),
    ):
        yield


def _of_the_bookie(name: str) -> Callable[[], AbstractContextManager[None]]:
    """One of those that crashes in each step of the bookie alone find too."""
    return power_canaries.CANARIES[name]


CANARIES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "early-receipts": _early_receipts,
    "pending-dropped": _pending_is_dropped,
    "no-deduplication": _no_deduplication,
    "acknowledges-too-much": _acknowledges_too_much,
    "rewinds-too-little": _rewinds_too_little,
    "metadata-not-synced": _metadata_not_synced,
    "journal-not-synced": _of_the_bookie("journal not synced"),
    "journal-name-not-synced": _of_the_bookie("new journal's directory not synced"),
    "log-not-synced": _of_the_bookie("entry log not synced"),
    "log-name-not-synced": _of_the_bookie("entry log's directory not synced"),
    "index-not-synced": _of_the_bookie("index not synced"),
    "mark-before-flush": _of_the_bookie("mark moved before the flush"),
}

FOUND_BY: dict[str, int] = {
    "early-receipts": 20,
    "pending-dropped": 1,
    "no-deduplication": 43,
    "acknowledges-too-much": 1,
    "rewinds-too-little": 2,
    "metadata-not-synced": 6,
    "journal-not-synced": 1,
    "journal-name-not-synced": 9,
    "log-not-synced": 7,
    "log-name-not-synced": 31,
    "index-not-synced": 16,
    "mark-before-flush": 3,
}
"""The seeds that found them when this was written."""


def first_seed(name: str, seeds: Iterable[int]) -> int | None:
    """The first seed that finds a break."""
    with CANARIES[name]():
        return next((seed for seed in seeds if run_seed(seed, is_brief=True).violations), None)

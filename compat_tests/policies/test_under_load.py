"""Quotas while messages are published, retention and time to live while a consumer pauses: exactly
what should go is gone (spec BR-04, BR-23).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from compat_tests.policies.model import JSON
from compat_tests.policies.world import PATH, Link, World, world
from geminga_broker.policies.quota import EVICTION_FACTOR
from geminga_protocol.ids import Position

SENT = 600
LIMIT_BYTES = 100_000
QUOTA = {"backlogQuotaCheckIntervalInSeconds": "1", "preciseTimeBasedBacklogQuotaCheck": "true"}
SHORT_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "retentionCheckIntervalInSeconds": "10",
}


async def published(link: Link, count: int, size: int = 500, age_s: int = 0) -> int:
    """Publish until so many are stored, or the broker closes the producer; returns how many are."""
    producer = await link.produce()
    assert isinstance(producer, int)
    before, link.closed = len(link.receipts), []
    for number in range(count):
        if link.closed:
            break
        await link.publish(producer, number, b"x" * size, age_s=age_s)
        await trio.sleep(0.01)
    await trio.sleep(1)
    return len(link.receipts) - before


@asynccontextmanager
async def consumer(at: World, subscription: str, permits: int) -> AsyncIterator[tuple[Link, int]]:
    """A consumer with so many permits, which acknowledges nothing by itself."""
    async with at.link() as link:
        number = await link.subscribe(subscription)
        assert isinstance(number, int)
        await link.flow(number, permits)
        yield link, number


async def standing(at: World, *subscriptions: str) -> None:
    """Subscriptions that nobody reads."""
    for name in subscriptions:
        await at.done("PUT", f"{PATH}/subscription/{name}", {"ledgerId": -1, "entryId": -1})


def backlog(at: World, subscription: str) -> int:
    """In entries."""
    return at.topic.subscriptions[subscription].backlog_entries()


async def all_of(at: World, subscription: str) -> list[Position]:
    """What a new consumer of the subscription gets, in order; it acknowledges all of it."""
    async with consumer(at, subscription, SENT * 2) as (link, number):
        await trio.sleep(1)
        found = list(link.messages)
        await link.acknowledge(number, found)
        await trio.sleep(1)
    return found


def places(at: World, link: Link) -> list[int]:
    """Entry ids of what was delivered; for logs of one ledger."""
    del at
    return [place.entry_id for place in link.messages]


@pytest.mark.parametrize("kind", ["destination_storage", "message_age"])
@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", "ProducerBlockedQuotaExceededError"),
        ("producer_exception", "ProducerBlockedQuotaExceededException"),
    ],
)
async def test_a_quota_that_holds_producers_loses_nothing(
    policy: str, error: str, kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    limits = {"limitSize": LIMIT_BYTES, "limitTime": 60, "policy": policy}
    async with world(QUOTA) as at, at.link() as link:
        await standing(at, "live", "idle")
        await at.done("POST", f"{PATH}/backlogQuota?backlogQuotaType={kind}", limits)
        async with consumer(at, "live", 2 * SENT) as (live, number):
            accepted = await published(link, SENT, age_s=100 if kind == "message_age" else 0)
            await live.acknowledge(number, live.messages)
            await trio.sleep(0.1)
            assert 0 < accepted < SENT
            assert link.closed
            assert len(live.messages) == accepted
            assert await link.produce() == error
        assert (backlog(at, "live"), backlog(at, "idle")) == (0, accepted)
        found = await all_of(at, "idle")
        assert [place.entry_id for place in found] == list(range(accepted))
        await trio.sleep(2)
        assert isinstance(await link.produce(), int)


@pytest.mark.slow
async def test_a_quota_that_evicts_leaves_the_newest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = {"limitSize": LIMIT_BYTES, "policy": "consumer_backlog_eviction"}
    async with world(QUOTA) as at, at.link() as link:
        await standing(at, "live", "idle")
        await at.done("POST", f"{PATH}/backlogQuota", limits)
        async with consumer(at, "live", 2 * SENT) as (live, _):
            assert await published(link, SENT) == SENT
            assert [place.entry_id for place in live.messages] == list(range(SENT))
            # The slower of the two loses its oldest messages, and neither keeps more than that.
        kept = await all_of(at, "idle")
        size = at.topic.log.statistics().size_bytes // SENT
        assert kept[-1].entry_id == SENT - 1
        assert [place.entry_id for place in kept] == list(range(SENT - len(kept), SENT))
        # Checked once in a second, in which 100 messages come.
        assert EVICTION_FACTOR * LIMIT_BYTES / size - 2 <= len(kept) <= LIMIT_BYTES / size + 101
        assert not link.closed


async def test_a_quota_by_age_evicts_what_is_too_old(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = {"limitTime": 100, "policy": "consumer_backlog_eviction"}
    async with world(QUOTA) as at, at.link() as link:
        await standing(at, "idle")
        for age_s in (300, 101, 80, 0):
            await published(link, 10, age_s=age_s)
        path = f"{PATH}/backlogQuota?backlogQuotaType=message_age"
        await at.done("POST", path, limits)
        await trio.sleep(2)
        assert [place.entry_id for place in await all_of(at, "idle")] == list(range(20, 40))


async def test_a_time_to_live_against_a_paused_consumer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What is too old is gone at once, delivered or not; the rest comes when it goes on."""
    async with world({}) as at, at.link() as link:
        await standing(at, "sub")
        for age_s, count in ((200, 3), (100, 3), (1, 4)):
            await published(link, count, age_s=age_s)
        async with consumer(at, "sub", 4) as (paused, number):
            await trio.sleep(1)
            await at.done("POST", f"{PATH}/messageTTL?messageTTL=150")
            await trio.sleep(0.1)
            assert backlog(at, "sub") == 7
            await at.done("POST", f"{PATH}/messageTTL?messageTTL=50")
            await trio.sleep(0.1)
            assert backlog(at, "sub") == 4
            await at.done("DELETE", f"{PATH}/messageTTL")
            await paused.flow(number, 100)
            await trio.sleep(1)
            assert places(at, paused) == [0, 1, 2, 3, 6, 7, 8, 9]
        assert [place.entry_id for place in await all_of(at, "sub")] == [6, 7, 8, 9]


@pytest.mark.parametrize(
    ("retention", "left"), [(None, 10), ((0, 0), 10), ((-1, -1), 20), ((-1, 1), 20)]
)
async def test_retention_against_a_paused_consumer(
    retention: tuple[int, int] | None, left: int, autojump_clock: trio.testing.MockClock
) -> None:
    """What isn't acknowledged stays, whatever retention says; what is, as long as that says."""
    async with world(SHORT_LEDGERS) as at, at.link() as link:
        await standing(at, "sub")
        if retention is not None:
            minutes, megabytes = retention
            told: JSON = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
            await at.done("POST", f"{PATH}/retention", told)
        assert await published(link, 20) == 20
        entries = at.topic.log.statistics
        async with consumer(at, "sub", 12) as (paused, number):
            await trio.sleep(30)
            assert (len(paused.messages), entries().entries) == (12, 20)
            await paused.acknowledge(number, paused.messages[:10])
            await trio.sleep(30)
            assert entries().entries == left
        rest = paused.messages[10:]
        found = await all_of(at, "sub")
        assert (found[:2], len(found)) == (rest, 10)
        await at.done("DELETE", f"{PATH}/retention")
        await trio.sleep(30)
        assert entries().entries == 0

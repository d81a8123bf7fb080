"""Our client of bookies keeps the contract of `BookiePort` before one of Apache's."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from compat_tests.apache.bookie import FRAME_BYTES_MAX, ApacheBookie, start_bookie
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie._tests.port_contract import (
    BookiePortContract,
    ImpossibleContract,
    ListingContract,
)
from geminga_bookie.port import BookiePort
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote

pytestmark = pytest.mark.java

SORTED = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}
OPTIONS = RemoteOptions(
    frame_bytes_max=FRAME_BYTES_MAX, add_timeout_s=60, read_timeout_s=60, connect_timeout_s=60
)
_ledgers = itertools.count(1_000, 10)


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBookie]:
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path_factory.mktemp("bookie") / "work")
    yield running
    running.kill()


@pytest.fixture(scope="module")
def other_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBookie]:
    """The storage that Pulsar uses doesn't list entries."""
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path_factory.mktemp("bookie") / "work", SORTED)
    yield running
    running.kill()


@pytest.fixture(params=["v3", "v2"])
async def bookie(apache: ApacheBookie, request: pytest.FixtureRequest) -> AsyncIterator[BookiePort]:
    options = replace(OPTIONS, adds_by_v2=request.param == "v2")
    async with open_remote("bookie-1:3181", "127.0.0.1", apache.port, options) as port:
        yield port


@pytest.fixture
def first_ledger() -> int:
    return next(_ledgers)


class TestBookiePort(BookiePortContract):
    """What every bookie does."""

    fences_tell_explicit_lac = False


class TestWhatNoLedgerCanHave(ImpossibleContract):
    """What our client refuses before it is sent."""


class TestListing(ListingContract):
    """Lists of entries."""

    @pytest.fixture
    async def bookie(self, other_storage: ApacheBookie) -> AsyncIterator[BookiePort]:
        async with open_remote("bookie-1:3181", "127.0.0.1", other_storage.port, OPTIONS) as port:
            yield port

"""The bookies of this process keep the contract of `BookiePort`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from geminga_bookie._tests.port_contract import (
    BookiePortContract,
    ImpossibleContract,
    ListingContract,
    OwnBookieContract,
)
from geminga_bookie._tests.support import small_options
from geminga_bookie.inprocess import BookieOptions, open_bookie
from geminga_bookie.port import BookiePort


@pytest.fixture(params=["memory", "disk"])
async def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BookiePort]:
    options = (
        BookieOptions(bookie_id="bookie-1:3181", in_memory=True)
        if request.param == "memory"
        else small_options(tmp_path)
    )
    async with open_bookie(options) as port:
        yield port


@pytest.fixture
def first_ledger() -> int:
    return 7


class TestBookiePort(BookiePortContract):
    """What every bookie does."""


class TestListing(ListingContract):
    """Lists of entries."""


class TestOwnBookie(OwnBookieContract):
    """What ours do beyond that."""


class TestWhatNoLedgerCanHave(ImpossibleContract):
    """What all refuse."""

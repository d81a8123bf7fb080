"""Our bookies behind our server keep the contract before our client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.port_contract import (
    BookiePortContract,
    ImpossibleContract,
    ListingContract,
    OwnBookieContract,
)
from geminga_bookie._tests.support import small_options
from geminga_bookie.inprocess import BookieOptions, open_bookie
from geminga_bookie.port import BookiePort
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie
from geminga_bookie.wire.session_limits import SessionLimits

FRAME_BYTES_MAX = 6 * 1024 * 1024
REMOTE = RemoteOptions(frame_bytes_max=FRAME_BYTES_MAX, add_timeout_s=60, read_timeout_s=60)
SERVER = BookieServerOptions("127.0.0.1", 0, SessionLimits(frame_bytes_max=FRAME_BYTES_MAX))


@pytest.fixture(params=["memory", "disk", "disk, adds by v2"])
async def bookie(
    request: pytest.FixtureRequest, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[BookiePort]:
    options = (
        BookieOptions(bookie_id="bookie-1:3181", in_memory=True)
        if request.param == "memory"
        else small_options(tmp_path)
    )
    remote = replace(REMOTE, adds_by_v2="v2" in request.param)
    async with open_bookie(options) as local:
        bound = await nursery.start(serve_bookie, local, SERVER)
        async with open_remote("bookie-1:3181", *bound[0], remote) as port:
            yield port
        nursery.cancel_scope.cancel()


@pytest.fixture
def first_ledger() -> int:
    return 7


class TestBookiePort(BookiePortContract):
    """What every bookie does."""

    fences_tell_explicit_lac = False


class TestListing(ListingContract):
    """Lists of entries."""


class TestOwnBookie(OwnBookieContract):
    """What ours do beyond that."""


class TestWhatNoLedgerCanHave(ImpossibleContract):
    """What all refuse."""

"""Apache's client gets from our bookie what it gets from Apache's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from compat_tests.apache.bookie import ApacheBookie, start_bookie
from compat_tests.apache.jars import run_java
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie._tests.support import small_options
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.wire.server import BookieServerOptions, serve_bookie

pytestmark = pytest.mark.java

CALLS = (
    "readlac:7 read:7:0 add:7:0 add:7:1 add:7:2 read:7:1 read:7:9 read:99:1 readlac:7 "
    "writelac:7:2 readlac:7 wait:7:0:500 wait:7:5:500 force:7 many:7:0:10:100000 many:7:1:2:10 "
    "many:7:9:2:10 fence:7 add:7:3 recover:7:3 read:7:3 fence:77 add:77:0 recover:77:0 readlac:77 "
    "wait:77:0:300 add:300:128 read:300:128"
)


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBookie]:
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path_factory.mktemp("bookie") / "work")
    yield running
    running.kill()


def called(port: int, version: str, calls: str) -> list[str]:
    """What Apache's client prints."""
    arguments = ["127.0.0.1", str(port), version, *calls.split()]
    return run_java("BookieCalls", arguments).splitlines()


@pytest.mark.parametrize("version", ["v2", "v3"])
async def test_the_answers_are_those_of_apache(
    apache: ApacheBookie, version: str, tmp_path: Path, nursery: trio.Nursery
) -> None:
    # Each version has its own ledgers on Apache's bookie, which both tests share.
    calls = CALLS if version == "v2" else CALLS.replace(":7", ":17").replace(":99", ":98")
    calls = calls.replace(":300:", ":301:") if version == "v2" else calls
    async with open_bookie(small_options(tmp_path)) as local:
        bound = await nursery.start(serve_bookie, local, BookieServerOptions("127.0.0.1", 0))
        ours = await trio.to_thread.run_sync(called, bound[0].port, version, calls)
        nursery.cancel_scope.cancel()
    expected = await trio.to_thread.run_sync(called, apache.port, version, calls)
    assert ours == expected
    assert sum(" ok" in line for line in ours) > 15


async def test_lists_of_entries(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Apache's bookies with the storage of Pulsar don't answer this at all."""
    calls = "add:7:0 add:7:2 add:7:4 list:7 list:8 deferred:9:0 info:0"
    async with open_bookie(small_options(tmp_path)) as local:
        bound = await nursery.start(serve_bookie, local, BookieServerOptions("127.0.0.1", 0))
        with skipped_without(BOOKIE):
            ours = await trio.to_thread.run_sync(called, bound[0].port, "v3", calls)
        nursery.cancel_scope.cancel()
    assert ours[3:] == [
        "list:7 ok 3",
        "list:8 failed No such ledger exists on Bookies",
        "deferred:9:0 ok",
        "info:0 -100 false",
    ]

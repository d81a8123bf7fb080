"""Our client of bookies when one of Apache's is paused, and killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from compat_tests.apache.bookie import FRAME_BYTES_MAX, ApacheBookie, start_bookie
from compat_tests.missing import BOOKIE, skipped_without
from geminga_bookie._tests.support import KEY, Outcomes, packets
from geminga_bookie.errors import BookieUnavailable, BookkeeperError, RequestTimeout
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import RemoteBookie, open_remote

pytestmark = pytest.mark.java

OPTIONS = RemoteOptions(
    frame_bytes_max=FRAME_BYTES_MAX, add_timeout_s=60, read_timeout_s=60, connect_timeout_s=60
)
IMPATIENT = replace(OPTIONS, add_timeout_s=0.2, read_timeout_s=0.2, connect_timeout_s=0.2)


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[ApacheBookie]:
    with skipped_without(BOOKIE):
        running = start_bookie(tmp_path / "work")
    yield running
    running.kill()


def begin(bookie: RemoteBookie, first: int, count: int) -> Outcomes:
    outcomes = Outcomes()
    bookie.add(7, KEY, first, packets(7, range(first, first + count), 1000), outcomes)
    return outcomes


async def test_a_paused_bookie(apache: ApacheBookie) -> None:
    """What it was asked fails in time; it is spoken to again when it goes on."""
    async with (
        open_remote("b:1", "127.0.0.1", apache.port, OPTIONS) as patient,
        open_remote("b:1", "127.0.0.1", apache.port, IMPATIENT) as impatient,
    ):
        await begin(patient, 0, 10).wait_for(10)
        apache.pause()
        waiting = begin(patient, 10, 10)
        tried = begin(impatient, 20, 10)
        with pytest.raises((RequestTimeout, BookieUnavailable)):
            await impatient.last_entry(7)
        await tried.wait_for(10)
        assert {type(error) for error in tried.errors} <= {RequestTimeout, BookieUnavailable}
        assert tried.errors
        assert waiting.total == 0
        apache.resume()
        await waiting.wait_for(10)
        assert waiting.errors == []
        with trio.fail_after(60):
            while True:
                try:
                    assert len(await impatient.read(7, 0, entries_max=20, bytes_max=1 << 20)) == 20
                    break
                except BookkeeperError:
                    await trio.sleep(0.05)


async def test_a_killed_bookie(apache: ApacheBookie) -> None:
    """What it had not answered is of unknown outcome; each entry is done once."""
    async with open_remote("b:1", "127.0.0.1", apache.port, OPTIONS) as bookie:
        before = begin(bookie, 0, 50)
        await before.wait_for(50)
        apache.pause()
        every = [begin(bookie, first, 50) for first in range(50, 20_000, 50)]
        await trio.testing.wait_all_tasks_blocked()
        apache.kill()
        for first, outcomes in zip(range(50, 20_000, 50), every, strict=True):
            await outcomes.wait_for(50)
            found = [(at, count, type(error)) for at, count, error in outcomes.runs]
            assert found == [(first, 50, BookieUnavailable)]
        assert before.errors == []
        with pytest.raises(BookieUnavailable):
            await bookie.last_entry(7)

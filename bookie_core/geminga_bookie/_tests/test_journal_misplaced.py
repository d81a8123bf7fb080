"""Journals in which a record was written over another one (BK-02)."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_bookie._tests.journal_files import PAGE_BYTES, errors, patch, used_journal
from geminga_bookie._tests.support import add, copy_files, packets, read_all, small_options
from geminga_bookie.errors import NoSuchLedger
from geminga_bookie.inprocess import open_bookie


def records(path: Path) -> list[int]:
    """Offsets of the records of a new file, each one of a page."""
    data = path.read_bytes()
    pages = [data[offset : offset + PAGE_BYTES] for offset in range(0, len(data), PAGE_BYTES)]
    return [n * PAGE_BYTES for n, page in enumerate(pages) if page[48:].strip(b"\0") and n]


@pytest.mark.parametrize(("source", "target"), [(-1, 2), (7, 2), (5, 4), (1, 6), (6, 0)])
async def test_a_record_written_over_another_costs_that_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: int, target: int
) -> None:
    """From behind or before it: what stands between the two is read."""
    for attempt in range(20):
        made = tmp_path / f"a{attempt}"
        async with open_bookie(small_options(made)) as bookie:
            for ledger_id in range(10):
                await add(bookie, ledger_id, [0])
            copy_files(made, tmp_path / f"b{attempt}")
        path = used_journal(tmp_path / f"b{attempt}")
        places = records(path)
        if len(places) == 10:  # on a busy machine key and entry may come into two records
            break
    assert len(places) == 10
    copied = path.read_bytes()[places[source] :][:PAGE_BYTES]
    patch(path, places[target], copied)
    async with open_bookie(small_options(tmp_path / f"b{attempt}")) as bookie:
        for ledger_id in range(10):
            if ledger_id == target:
                with pytest.raises(NoSuchLedger):
                    await bookie.read(ledger_id, 0, entries_max=1, bytes_max=1)
            else:
                assert await read_all(bookie, ledger_id, 0, 0) == packets(ledger_id, [0])
    (text,) = {text for text in errors(caplog) if "may be lost" in text}
    assert f"at {places[target]} to {places[target] + PAGE_BYTES}" in text

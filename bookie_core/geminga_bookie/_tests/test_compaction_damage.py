"""Compaction of a log with blocks that can't be read (BK-06, BK-12)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import add, ledgers, packets, read_all, small_options
from geminga_bookie.errors import DigestMismatch
from geminga_bookie.inprocess import InProcessBookie, open_bookie


async def test_a_log_with_an_unreadable_block_is_not_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The block is kept for a later repair; other entries are served."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        for ledger_id in (1, 2, 3):
            await add(port, ledger_id, range(5))
    (path,) = (tmp_path / "ledgers").glob("*.log")
    data = path.read_bytes()
    start = data.rindex(data[8192:8196], 0, data.index(b"2:0|"))
    path.write_bytes(data[:start] + b"KLBG" + data[start + 4 :])
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for _ in range(2):
            report = await bookie.gc.collect(ledgers(2, 3), threshold=0.99)
            assert report.logs_compacted == 0
        assert path.exists()
        assert caplog.text.count("the log is kept as it is") == 1
        assert await read_all(bookie, 3, 0, 4) == packets(3, range(5))
        with pytest.raises(DigestMismatch):
            await bookie.read(2, 0, entries_max=1, bytes_max=1)
        report = await bookie.gc.collect(ledgers())
        assert report.logs_removed == 1
    assert not list((tmp_path / "ledgers").glob("*.compacting"))

"""What an older version let into the journal, although no file has room for it, does not keep the
bookie from starting (BK-02)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import (
    KEY,
    add,
    copy_files,
    lac_packet,
    packets,
    read_all,
    small_options,
)
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage.journal import Request
from geminga_bookie.storage.journal_format import ENTRIES, EXPLICIT_LAC, FENCE, MASTER_KEY


async def test_impossible_ids_in_a_journal_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as port:
        bookie = cast(InProcessBookie, port)
        await add(bookie, 1, range(3))
        submit = bookie.storage.journals[0].submit
        for kind, ledger_id, number, payload in (
            (ENTRIES, 1, -5, packets(1, [0])),
            (ENTRIES, -7, 0, packets(1, [0])),
            (ENTRIES, 1, (1 << 63) - 1, packets(1, [0, 1])),
            (MASTER_KEY, -7, 0, [KEY]),
            (FENCE, -8, 0, []),
            (EXPLICIT_LAC, -9, 5, [lac_packet(-9, 5)]),
        ):
            submit(Request(kind, ledger_id, number, payload))
        await add(bookie, 1, range(3, 6))
        copy_files(tmp_path / "a", tmp_path / "b")
    for _ in range(2):
        async with open_bookie(small_options(tmp_path / "b")) as port:
            bookie = cast(InProcessBookie, port)
            await bookie.checkpointer.checkpoint()
            assert await read_all(bookie, 1, 0, 5) == packets(1, range(6))
    assert caplog.text.count("6 items of the journal have ids that no ledger can have") == 1

"""kill -9 of a bookie under load: every acknowledged entry is there again (BK-02)."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geminga_bookie._tests.kill_child import ENTRY_BYTES, LEDGERS
from geminga_bookie._tests.support import packets, read_all, small_options
from geminga_bookie.inprocess import open_bookie
from geminga_protocol._tests.rounds import rounds

ROUNDS = rounds(6)


def run_and_kill(directory: Path, log: Path, first: int, after_s: float) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "geminga_bookie._tests.kill_child",
            str(directory),
            str(descriptor),
            str(first),
        ],
        pass_fds=[descriptor],
    )
    size = log.stat().st_size
    deadline = time.monotonic() + 60
    told: set[int] = set()
    while len(told) < LEDGERS and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.005)
        written = log.read_bytes()[size:]
        told = {ledger_id for ledger_id, _, _ in struct.iter_unpack("<QQQ", written)}
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    os.close(descriptor)


@pytest.mark.slow
async def test_kill_under_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(4)
    acknowledged: list[dict[int, None]] = [{} for _ in range(LEDGERS)]
    log = tmp_path / "acknowledged"
    read = 0
    log.touch()
    for number in range(ROUNDS):
        first = number * 1_000_000
        run_and_kill(tmp_path / "data", log, first, chance.uniform(0.0, 0.5))
        data = log.read_bytes()
        for ledger_id, entry, count in struct.iter_unpack("<QQQ", data[read:]):
            acknowledged[ledger_id].update(dict.fromkeys(range(entry, entry + count)))
        read = len(data)
        async with open_bookie(small_options(tmp_path / "data")) as bookie:
            for ledger_id in range(LEDGERS):
                ids = list(acknowledged[ledger_id])
                assert ids, "nothing was acknowledged: the test would pass on nothing"
                held = await bookie.list_entries(ledger_id)
                assert set(ids) <= set(held)
                mine = [entry for entry in ids if entry >= first]
                found = await read_all(bookie, ledger_id, mine[0], mine[-1])
                assert found == packets(ledger_id, mine, ENTRY_BYTES)
    assert "may be lost" not in caplog.text

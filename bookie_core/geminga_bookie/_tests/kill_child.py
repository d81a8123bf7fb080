"""The child of the kill test: a bookie under load that reports acknowledged entries,
unbuffered."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import trio

from geminga_bookie._tests.support import KEY, packets, small_options
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import JournalOptions

LEDGERS = 3
RUN = 20
IN_FLIGHT_MAX = 300
ENTRY_BYTES = 500


async def main(directory: Path, log_descriptor: int, first: int) -> None:
    options = small_options(
        directory,
        write_cache_bytes=400_000,
        journal=JournalOptions(segment_bytes=1 << 20, first_segment_bytes=1 << 18, backups_max=1),
    )
    pushed = acknowledged = 0
    changed = trio.Event()

    def done_for(ledger_id: int):
        def done(first_id: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal acknowledged
            assert error is None, error
            acknowledged += count
            os.write(log_descriptor, struct.pack("<QQQ", ledger_id, first_id, count))
            changed.set()

        return done

    async with open_bookie(options) as bookie:
        dones = [done_for(ledger_id) for ledger_id in range(LEDGERS)]
        entry = first
        while True:
            for ledger_id in range(LEDGERS):
                ids = range(entry, entry + RUN)
                bookie.add(ledger_id, KEY, entry, packets(ledger_id, ids, 500), dones[ledger_id])
                pushed += RUN
            entry += RUN
            while pushed - acknowledged > IN_FLIGHT_MAX:
                changed = trio.Event()
                await changed.wait()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

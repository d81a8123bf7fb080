"""Records the frames between Apache's own bookie client and bookie: `python -m
compat_tests.wire.record_bookie`.

The golden cases in `golden_bookie/` come from it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compat_tests.apache.bookie import start_bookie
from compat_tests.apache.jars import java_command
from compat_tests.wire.relay import Relay

GOLDEN = Path(__file__).parent / "golden_bookie"
CALLS = (
    "read:7:0 add:7:0 add:7:1 add:7:2 read:7:1 read:7:9 readlac:7 writelac:7:2 readlac:7 "
    "force:7 info:0 wait:7:0:500 wait:7:5:500 many:7:0:10:100000 many:7:1:2:10 many:7:9:2:10 "
    "fence:7 add:7:3 recover:7:3 fence:8 readlac:9 writelac:9:4 readlac:9 deferred:10:0 add:300:5"
)
LISTING = "list:7 add:7:0 add:7:1 add:7:3 add:7:4 add:7:6 add:7:7 add:7:9 list:7"
"""For another kind of storage: the usual one of Pulsar doesn't answer."""

SORTED = {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"}


def main() -> None:
    """Write one JSON file for each version of the protocol, and one for the lists of entries."""
    GOLDEN.mkdir(exist_ok=True)
    _record({}, [("v3", CALLS.split()), ("v2", CALLS.replace(":7", ":17").split())])
    _record(SORTED, [("v3", LISTING.split())], suffix="_list")


def _record(
    settings: dict[str, str], cases: Sequence[tuple[str, Sequence[str]]], suffix: str = ""
) -> None:
    work = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        bookie = start_bookie(work / "bookie", settings)
        try:
            for version, calls in cases:
                with Relay(("127.0.0.1", bookie.port)) as relay:
                    _run(version, calls, relay)
                    _write(version + suffix, calls, relay)
        finally:
            bookie.kill()
    finally:
        shutil.rmtree(work)


def _run(version: str, calls: Sequence[str], relay: Relay) -> None:
    arguments = ["127.0.0.1", str(relay.address[1]), version, *calls]
    command = java_command("BookieCalls", arguments, heap_mb=128)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        sys.exit(f"{version}: {done.stdout}{done.stderr}")
    print(done.stdout)


def _write(name: str, calls: Sequence[str], relay: Relay) -> None:
    connections = [
        [
            {"from": "bookie" if side == "broker" else side, "hex": raw.hex()}
            for side, raw in each.frames
        ]
        for each in relay.recordings
    ]
    document = {"recorded": "Apache BookKeeper 4.17.2", "calls": calls, "connections": connections}
    path = GOLDEN / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{path.name}: {sum(map(len, connections))} frames, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

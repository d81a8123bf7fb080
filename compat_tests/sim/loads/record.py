"""`python -m compat_tests.sim.loads.record http://127.0.0.1:8080`: record the load of a broker,
ours or Apache's, for the simulation.

Reads the throughput of each topic in its metrics every ten seconds, and prints at the end a line
for each topic that was used: bytes a second, in and out. `recorded.txt` is such a recording.
"""

from __future__ import annotations

import argparse
import re
import time
import urllib.request
from collections import defaultdict

SAMPLE_S = 10.0

_THROUGHPUT = re.compile(r'^pulsar_throughput_(?:in|out)\{[^}]*topic="([^"]+)"[^}]*\} (\S+)', re.M)


def main() -> None:
    """Until it is interrupted, or for as long as asked."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.sim.loads.record")
    parser.add_argument("url", help="of the broker's web service")
    parser.add_argument("--samples", type=int, default=90, help="each ten seconds")
    chosen = parser.parse_args()
    rows: dict[str, list[float]] = defaultdict(list)
    for at in range(chosen.samples):
        time.sleep(SAMPLE_S)
        with urllib.request.urlopen(f"{chosen.url}/metrics/") as answer:
            text = answer.read().decode()
        for topic, value in _THROUGHPUT.findall(text):
            row = rows[topic]
            row += [0.0] * (at + 1 - len(row))
            row[at] += float(value)
    for _, row in sorted(rows.items()):
        if sum(row) > 0:
            row += [0.0] * (chosen.samples - len(row))
            print(" ".join(f"{each:.0f}" for each in row))


if __name__ == "__main__":
    main()

"""What our SDK costs a program that does nothing with it yet: the import, and idle producers and
consumers. Each figure is of a fresh interpreter.

    python -m compat_tests.bench.sdk_memory pulsar://127.0.0.1:6650 [count]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

import geminga

COUNT = 1000
AT_ONCE = 50
_IMPORTS_TRIED = 5
_IMPORT = """
import time
began_s = time.process_time()
import geminga
{also}
cpu_s = time.process_time() - began_s
status = open("/proc/self/status").read()
print(cpu_s, status.partition("VmRSS:")[2].split()[0])
"""


@dataclass(frozen=True)
class ImportCost:
    """Of `import geminga`, and of that with all that a client needs."""

    import_s: float
    import_rss_mb: float
    used_s: float
    used_rss_mb: float


@dataclass(frozen=True)
class IdleCost:
    """Of a client with so many idle producers and as many consumers, each on a topic of its own."""

    count: int
    client_rss_mb: float
    """With the client connected, nothing made yet."""
    producer_kb: float
    consumer_kb: float
    all_rss_mb: float
    create_s: float
    """CPU seconds for making them all."""


def import_cost() -> ImportCost:
    """CPU seconds (the best of a few) and resident memory."""
    plain = _imported("")
    used = _imported("geminga.connect, geminga.Producer, geminga.Consumer")
    return ImportCost(*plain, *used)


def _imported(also: str) -> tuple[float, float]:
    rows: list[tuple[float, float]] = []
    for _ in range(_IMPORTS_TRIED):
        code = [sys.executable, "-c", _IMPORT.format(also=also)]
        done = subprocess.run(code, capture_output=True, text=True, check=True)
        cpu_s, rss_kb = done.stdout.split()
        rows.append((float(cpu_s), int(rss_kb) / 1024))
    return min(row[0] for row in rows), min(row[1] for row in rows)


def idle_cost(service_url: str, count: int = COUNT) -> IdleCost:
    """Makes so many producers and consumers on the broker at that URL, in a process of its own."""
    command = [sys.executable, "-m", "compat_tests.bench.sdk_memory", service_url, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return IdleCost(**json.loads(done.stdout))


async def _measure(service_url: str, count: int) -> IdleCost:
    run = uuid.uuid4().hex[:6]
    limit = trio.CapacityLimiter(AT_ONCE)
    kept: list[object] = []

    async with geminga.connect(service_url) as client:

        async def produce(number: int) -> None:
            async with limit:
                kept.append(await client.create_producer(f"idle-{run}-{number}"))

        async def consume(number: int) -> None:
            async with limit:
                kept.append(await client.subscribe(f"idle-{run}-{number}", "s"))

        await produce(count)
        await consume(count)
        began_s = time.process_time()
        sizes_kb = [_rss_kb()]
        for make in (produce, consume):
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    nursery.start_soon(make, number)
            sizes_kb.append(_rss_kb())
        create_s = time.process_time() - began_s
    return IdleCost(
        count,
        sizes_kb[0] / 1024,
        (sizes_kb[1] - sizes_kb[0]) / count,
        (sizes_kb[2] - sizes_kb[1]) / count,
        sizes_kb[2] / 1024,
        create_s,
    )


def _rss_kb() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else COUNT
    print(json.dumps(asdict(trio.run(_measure, sys.argv[1], wanted))))

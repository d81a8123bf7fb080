"""What TLS costs: our SDK to our server without it and with it, on both sides, in one run.

``python -m compat_tests.bench.tls_rows URL CA COUNT BATCHING`` is the load itself; it prints one
JSON line.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Mapping

import trio

import geminga
from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side, run_program
from compat_tests.processes import start_geminga
from geminga_runtime._tests.certificates import Authority

SIZE_BYTES = 1024
TIMES_MAX = 2.0
"""TLS on both sides is to reach half of the plain rate."""


def tls_unbatched(side: Side) -> Mapping[str, float]:
    """Each message is an entry of its own."""
    return _beside(side, batching=0, count=int(side.seconds(200_000, 10_000)))


def tls_batched(side: Side) -> Mapping[str, float]:
    """Batches of up to 1 ms or 128 KiB."""
    return _beside(side, batching=1, count=int(side.seconds(400_000, 20_000)))


def _beside(side: Side, *, batching: int, count: int) -> Mapping[str, float]:
    folder = side.work_dir / f"tls-{batching}"
    authority = Authority(folder / "ca")
    leaf = authority.server()
    settings = {
        "brokerServicePortTls": "0",
        "tlsCertificateFilePath": str(leaf.certificate),
        "tlsKeyFilePath": str(leaf.key),
    }
    side.stop()
    server = start_geminga(folder / "data", settings=settings, timeout_s=60)
    found: dict[str, float] = {}
    try:
        for kind, url in (("plain", server.service_url), ("tls", server.service_url_tls)) * 2:
            cpu_s = server.cpu_s()
            arguments = [url, str(authority.certificate), str(count), str(batching)]
            program = [sys.executable, "-m", "compat_tests.bench.tls_rows", *arguments]
            figures = run_program(program)
            # The second round of each counts: the first one warms the server up.
            found[f"{kind}_per_s"] = figures["per_s"]
            found[f"{kind}_client_cpu_us"] = figures["cpu_us"]
            found[f"{kind}_server_cpu_us"] = (server.cpu_s() - cpu_s) * 1e6 / count
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    found["times"] = found["plain_per_s"] / found["tls_per_s"]
    return found


async def _produce(url: str, ca: str, count: int, batching: bool) -> dict[str, float]:
    topic = f"persistent://public/default/tls-{time.time_ns()}"
    data = bytes(SIZE_BYTES)
    async with (
        geminga.connect(url, tls_trust_certs_file_path=ca) as client,
        await client.create_producer(
            topic, batching_enabled=batching, max_pending_messages=10_000
        ) as producer,
    ):
        await producer.send(data)
        began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(count):
            await producer.submit(data)
        await producer.flush()
        took_s = time.perf_counter() - began
        now = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {"per_s": count / took_s, "cpu_us": cpu_s * 1e6 / count}


_MEASURES = (
    Measure("tls_per_s", "published by TLS", "msg/s"),
    Measure("plain_per_s", "published without", "msg/s"),
    Measure("times", "time with TLS over time without", "×", geminga_max=TIMES_MAX),
    Measure("tls_server_cpu_us", "server CPU per message with TLS", "µs"),
    Measure("plain_server_cpu_us", "server CPU per message without", "µs"),
    Measure("tls_client_cpu_us", "client CPU per message with TLS", "µs"),
    Measure("plain_client_cpu_us", "client CPU per message without", "µs"),
)

TLS_ROWS = (
    Row("tls-unbatched", "TLS on both sides, 1 KiB, unbatched", tls_unbatched, _MEASURES, True),
    Row("tls-batched", "TLS on both sides, 1 KiB, batched", tls_batched, _MEASURES, True),
)


if __name__ == "__main__":
    given = sys.argv[1:]
    print(json.dumps(trio.run(_produce, given[0], given[1], int(given[2]), given[3] == "1")))

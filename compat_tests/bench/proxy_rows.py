"""What the proxy costs: the same load straight to our broker and through our proxy, in one run.

Broker, proxy and load share the machine's cores: with two of them all three compete, so that the
rates are lower bounds of what separate cores give, and the processor time of the proxy is told.

``python -m compat_tests.bench.proxy_rows produce URL TOKEN COUNT BATCHING`` and ``idle URL TARGET
COUNT`` are the loads; each prints one JSON line.
"""

from __future__ import annotations

import json
import resource
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from urllib.parse import urlsplit

import trio

import geminga
from compat_tests.apache.jars import java_command
from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import MB, Side, run_program, settle
from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.secured import Keys, start_broker, start_proxy
from geminga_protocol.commands import connection
from geminga_runtime.auth.api import Peer
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.auth.token import TokenProvider

SIZE_BYTES = 1024
TIMES_MAX = 1.25
"""Through the proxy 0.8 of the direct rate is to be reached."""
TUNNELS = 10_000
SPARE_FILES = 200
"""What a process has open beside its tunnels."""
ROUNDS = 2
"""The second one of each counts: the first warms up."""


def relay_unbatched(side: Side) -> Mapping[str, float]:
    """Each message is an entry of its own."""
    return _relayed(side, batching=0, count=int(side.seconds(200_000, 10_000)))


def relay_batched(side: Side) -> Mapping[str, float]:
    """Batches of up to 1 ms or 128 KiB."""
    return _relayed(side, batching=1, count=int(side.seconds(400_000, 20_000)))


class _Pair:
    """A broker and a proxy before it, stopped and forgotten at the end."""

    def __init__(self, side: Side, name: str) -> None:
        side.stop()
        self.folder = side.work_dir / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.broker = start_geminga(self.folder / "data", timeout_s=60)
        settings = {
            "brokerServiceURL": self.broker.service_url,
            "brokerWebServiceURL": self.broker.web_url,
            "maxConcurrentInboundConnections": str(2 * TUNNELS),
        }
        self.proxy = start_proxy(self.folder / "proxy", settings, log_level="WARNING", timeout_s=60)

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.kill()
        self.broker.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _produced(url: str, token: str, count: int, batching: int) -> dict[str, float]:
    arguments = ["produce", url, token, str(count), str(batching)]
    return run_program([sys.executable, "-m", "compat_tests.bench.proxy_rows", *arguments])


def _relayed(side: Side, *, batching: int, count: int) -> Mapping[str, float]:
    found: dict[str, float] = {}
    with _Pair(side, f"relay-{batching}") as pair:
        for _ in range(ROUNDS):
            for kind, server in (("direct", pair.broker), ("proxied", pair.proxy)):
                proxy_s, broker_s = pair.proxy.cpu_s(), pair.broker.cpu_s()
                figures = _produced(server.service_url, "-", count, batching)
                found[f"{kind}_per_s"] = figures["per_s"]
                found[f"{kind}_broker_cpu_us"] = (pair.broker.cpu_s() - broker_s) * 1e6 / count
            found["proxy_cpu_us"] = (pair.proxy.cpu_s() - proxy_s) * 1e6 / count
        found["rss_peak_mb"] = pair.proxy.rss_peak_bytes() / MB
    found["proxy_cpu_ms_per_mb"] = found["proxy_cpu_us"] / 1000 / (SIZE_BYTES / MB)
    found["times"] = found["direct_per_s"] / found["proxied_per_s"]
    return found


def added_latency(side: Side) -> Mapping[str, float]:
    """A steady 5 000 unbatched messages a second by the official Java client."""
    found: dict[str, float] = {}
    with _Pair(side, "added") as pair:
        for _ in range(ROUNDS):
            for kind, server in (("direct", pair.broker), ("proxied", pair.proxy)):
                figures = _paced(side, server)
                found[f"{kind}_ms_p50"] = figures["publish_ms_p50"]
                found[f"{kind}_ms_p99"] = figures["publish_ms_p99"]
    found["added_us_p50"] = (found["proxied_ms_p50"] - found["direct_ms_p50"]) * 1000
    return found


def _paced(side: Side, server: ServerProcess) -> dict[str, float]:
    options = {
        "url": server.service_url,
        "topic": side.topic(),
        "batching": 0,
        "rate": 5000,
        "in-flight": 20_000,
        "warmup-s": side.seconds(5, 2),
        "duration-s": side.seconds(15, 3),
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return run_program(java_command("Load", ["produce", *arguments], heap_mb=512, lean=False))


def idle_tunnels(side: Side) -> Mapping[str, float]:
    """As many tunnels as two descriptors for each of them allow, up to 10 000."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # children inherit it
    most = (hard - SPARE_FILES) // 2
    count = min(int(side.seconds(TUNNELS, 500)), most)
    with _Pair(side, "idle-tunnels") as pair:
        before, cpu_s = pair.proxy.rss_bytes(), pair.proxy.cpu_s()
        target = pair.broker.service_url.removeprefix("pulsar://")
        arguments = ["idle", pair.proxy.service_url, target, str(count)]
        program = [sys.executable, "-m", "compat_tests.bench.proxy_rows", *arguments]
        run_program(program)
        return {
            "tunnels": count,
            "rss_mb": pair.proxy.rss_peak_bytes() / MB,
            "kb_each": (pair.proxy.rss_peak_bytes() - before) / count / 1000,
            "cpu_us_each": (pair.proxy.cpu_s() - cpu_s) * 1e6 / count,
        }


def token_check(side: Side) -> Mapping[str, float]:
    """A token whose key is loaded, in this process."""
    keys = Keys(side.work_dir / "token")
    settings = AuthSettings(enabled=True, token_secret_key=keys.secret_file.as_uri())
    provider, token = TokenProvider.from_settings(settings), keys.token("alice", 3600).encode()
    count = int(side.seconds(20_000, 1000))

    async def check() -> float:
        began_s = time.process_time()
        for _ in range(count):
            await provider.begin(Peer()).step(token)
        return (time.process_time() - began_s) * 1e6 / count

    return {"check_us": min(trio.run(check) for _ in range(3))}


def permission_check(side: Side) -> Mapping[str, float]:
    """Unbatched SENDs to a broker without authorization, and to one with it."""
    side.stop()
    count = int(side.seconds(200_000, 10_000))
    folder = side.work_dir / "permission"
    keys = Keys(folder / "keys")
    found: dict[str, float] = {}
    open_broker = start_geminga(folder / "open", timeout_s=60)
    guarded = start_broker("geminga", folder / "guarded", keys, log_level="INFO")
    try:
        for _ in range(ROUNDS):
            for kind, broker, token in (
                ("without", open_broker, "-"),
                ("with", guarded, keys.token("alice")),
            ):
                cpu_s = broker.cpu_s()
                found[f"{kind}_per_s"] = _produced(broker.service_url, token, count, 0)["per_s"]
                found[f"{kind}_cpu_us"] = (broker.cpu_s() - cpu_s) * 1e6 / count
    finally:
        open_broker.kill()
        guarded.kill()
        shutil.rmtree(folder, ignore_errors=True)
    found["times"] = found["with_cpu_us"] / found["without_cpu_us"]
    return found


async def _produce(url: str, token: str, count: int, batching: bool) -> dict[str, float]:
    topic = f"persistent://public/default/proxy-{time.time_ns()}"
    who = None if token == "-" else geminga.AuthenticationToken(token)
    data = bytes(SIZE_BYTES)
    async with (
        geminga.connect(url, authentication=who) as client,
        await client.create_producer(
            topic, batching_enabled=batching, max_pending_messages=10_000
        ) as producer,
    ):
        await producer.send(data)
        began_s = time.perf_counter()
        for _ in range(count):
            await producer.submit(data)
        await producer.flush()
        return {"per_s": count / (time.perf_counter() - began_s)}


def _idle(url: str, target: str, count: int) -> dict[str, float]:
    where = urlsplit(url)
    hello = connection.connect("idle", proxy_to_broker_url=target)
    with ExitStack() as stack:
        for _ in range(count):
            stream = stack.enter_context(socket.create_connection((where.hostname, where.port), 30))
            stream.sendall(hello)
            if not stream.recv(1000):
                raise ConnectionResetError("no tunnel")
        settle(1)
    return {"tunnels": count}


_RELAY = (
    Measure("proxied_per_s", "published through the proxy", "msg/s"),
    Measure("direct_per_s", "published directly", "msg/s"),
    Measure("times", "time through the proxy over time without", "×", geminga_max=TIMES_MAX),
    Measure("proxy_cpu_us", "proxy CPU per message", "µs"),
    Measure("proxy_cpu_ms_per_mb", "proxy CPU per MB", "ms"),
    Measure("proxied_broker_cpu_us", "broker CPU per message, proxied", "µs"),
    Measure("direct_broker_cpu_us", "broker CPU per message, direct", "µs"),
    Measure("rss_peak_mb", "highest resident memory of the proxy", "MB"),
)

PROXY_ROWS = (
    Row("proxy-unbatched", "Through the proxy, 1 KiB, unbatched", relay_unbatched, _RELAY, True),
    Row("proxy-batched", "Through the proxy, 1 KiB, batched", relay_batched, _RELAY, True),
    Row(
        "proxy-latency",
        "Through the proxy, 5 000 unbatched/s",
        added_latency,
        (
            Measure("added_us_p50", "p50 that the proxy adds", "µs", geminga_max=100.0),
            Measure("proxied_ms_p50", "publish p50 through the proxy", "ms"),
            Measure("direct_ms_p50", "publish p50 without", "ms"),
            Measure("proxied_ms_p99", "publish p99 through the proxy", "ms"),
            Measure("direct_ms_p99", "publish p99 without", "ms"),
        ),
        True,
    ),
    Row(
        "proxy-idle",
        "Idle tunnels",
        idle_tunnels,
        (
            Measure("rss_mb", "resident memory of the proxy", "MB", geminga_max=300.0),
            Measure("tunnels", "tunnels", ""),
            Measure("kb_each", "memory for each", "kB"),
            Measure("cpu_us_each", "CPU to open and close one", "µs"),
        ),
        True,
    ),
    Row(
        "token-check",
        "Check of a token",
        token_check,
        (Measure("check_us", "HS256, key loaded", "µs", geminga_max=50.0),),
        True,
    ),
    Row(
        "permission-check",
        "Authorization of a SEND",
        permission_check,
        (
            Measure("times", "broker CPU with it over without", "×", geminga_max=1.05),
            Measure("with_per_s", "published with it", "msg/s"),
            Measure("without_per_s", "published without", "msg/s"),
        ),
        True,
    ),
)


if __name__ == "__main__":
    mode, *given = sys.argv[1:]
    if mode == "produce":
        url, token, count, batching = given
        print(json.dumps(trio.run(_produce, url, token, int(count), batching == "1")))
    else:
        print(json.dumps(_idle(given[0], given[1], int(given[2]))))

"""What the commands of `geminga perf` have in common: their figures, reports and options."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from geminga.cli._histogram import Histogram

if TYPE_CHECKING:
    import trio

    from geminga.message import Message

REPORT_INTERVAL_S = 10.0

AMOUNT = click.FloatRange(0)
COMPRESSION = click.Choice(["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"], case_sensitive=False)
messages_option = click.option(
    "-m", "--num-messages", default=0, type=click.IntRange(0), help="In all, 0: for ever."
)
duration_option = click.option(
    "-time", "--test-duration", default=0.0, type=AMOUNT, help="Seconds, 0: for ever."
)


def names_of(topic: str, count: int) -> list[str]:
    """Names of so many topics."""
    return [topic] if count == 1 else [f"{topic}-{n}" for n in range(count)]


@dataclass
class Figures:
    """Counters, since the last report and in total."""

    verb: str
    message_bytes: int = 0
    messages: int = 0
    failures: int = 0
    window_messages: int = 0
    window_bytes: int = 0
    window_failures: int = 0
    window: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)
    began_s: float = field(default_factory=time.perf_counter)
    window_began_s: float = field(default_factory=time.perf_counter)

    def count(self, messages: int, size_bytes: int) -> None:
        """Count completed messages."""
        self.messages += messages
        self.message_bytes += size_bytes
        self.window_messages += messages
        self.window_bytes += size_bytes

    def report(self) -> None:
        """Print the counters since the last report."""
        now_s = time.perf_counter()
        took_s = now_s - self.window_began_s
        rate, mbit = self.window_messages / took_s, self.window_bytes * 8 / took_s / 1e6
        failures = ""
        if self.verb == "produced":
            failures = f" --- failure {self.window_failures / took_s:8.1f} msg/s"
        click.echo(
            f"Throughput {self.verb}: {self.messages:7d} msg --- {rate:8.1f} msg/s"
            f" --- {mbit:8.1f} Mbit/s{failures} --- Latency: {self.window.describe_ms()}"
        )
        self._next_window(now_s)

    def _next_window(self, now_s: float) -> None:
        self.whole.add(self.window)
        self.window = Histogram()
        self.window_messages = self.window_bytes = self.window_failures = 0
        self.window_began_s = now_s

    def restart(self) -> None:
        """Restart all counters after the warm-up."""
        now_s = time.perf_counter()
        self._next_window(now_s)
        self.whole = Histogram()
        self.messages = self.message_bytes = self.failures = 0
        self.began_s = now_s

    def summary(self) -> None:
        """Print the aggregate."""
        self.whole.add(self.window)
        took_s = time.perf_counter() - self.began_s
        what = "sent" if self.verb == "produced" else self.verb
        click.echo(
            f"Aggregated throughput stats --- {self.messages} records {what}"
            f" --- {self.messages / took_s:.3f} msg/s"
            f" --- {self.message_bytes * 8 / took_s / 1e6:.3f} Mbit/s"
        )
        click.echo(f"Aggregated latency stats --- Latency: {self.whole.describe_ms()}")


async def measure(
    figures: Figures,
    work: Callable[[], Awaitable[None]],
    *,
    test_duration_s: float,
    warmup_s: float = 0.0,
) -> None:
    """Run the work with reports, until its end, the time limit or Ctrl-C; then the aggregate."""
    import trio

    async def report() -> None:
        while True:
            await trio.sleep(REPORT_INTERVAL_S)
            figures.report()

    async def warm_up() -> None:
        await trio.sleep(warmup_s)
        figures.restart()

    try:
        with trio.move_on_after(test_duration_s + warmup_s if test_duration_s else math.inf):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(report)
                if warmup_s:
                    nursery.start_soon(warm_up)
                await work()
                nursery.cancel_scope.cancel()
    finally:
        figures.summary()


@dataclass(frozen=True)
class Source:
    """A consumer or reader: what gives its next messages, and what is done with each."""

    take: Callable[[], Awaitable[Sequence[Message]]]
    settle: Callable[[Message], Awaitable[None]] | None = None


async def receive(
    sources: Sequence[Source], figures: Figures, *, num_messages: int, rate: float
) -> None:
    """Count the messages of all sources, each at most at that rate (0: any), until there were
    `num_messages` in all (0: for ever).
    """
    import trio

    async def follow(source: Source, nursery: trio.Nursery) -> None:
        began_s = time.perf_counter()
        taken = 0
        while True:
            for message in await source.take():
                latency_ms = time.time() * 1000 - message.publish_time_ms
                figures.window.record(int(latency_ms * 1000))
                figures.count(1, len(message.data))
                if source.settle is not None:
                    await source.settle(message)
                taken += 1
                if 0 < num_messages <= figures.messages:
                    nursery.cancel_scope.cancel()
                    return
            if rate:
                ahead_s = taken / rate - (time.perf_counter() - began_s)
                await trio.sleep(max(ahead_s, 0.0))

    async with trio.open_nursery() as nursery:
        for source in sources:
            nursery.start_soon(follow, source, nursery)

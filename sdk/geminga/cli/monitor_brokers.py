"""`geminga perf monitor-brokers`: the brokers' load reports, live (spec OP-01; Apache's
BrokerMonitor). Heavy imports follow checked arguments.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from geminga.cli._run import run

if TYPE_CHECKING:
    from geminga.cli._broker_rows import Rows
    from geminga_runtime.metadata.api import MetadataStore

BROKERS = "/loadbalance/brokers"
AVERAGES = "/loadbalance/broker-time-average"
LEADER = "/loadbalance/leader"
EXTENSION_TOPIC = "non-persistent://pulsar/system/loadbalancer-broker-load-data"
"""Where the brokers of Apache's extensible load manager tell their load."""

PAUSE_S = 1.0
"""Between two looks at the store, when much changes."""
WIDTH_WITHOUT_TERMINAL = 200
"""Characters of a line in a file or pipe."""

Show: TypeAlias = "Callable[[Rows, str], None]"
"""Shows the brokers, and the leader's id, which may be empty."""


@click.command("monitor-brokers")
@click.option(
    "--connect-string",
    required=True,
    help="HOST:2181,HOST:2181/PATH of ZooKeeper; with --extensions a broker's pulsar:// URL.",
)
@click.option(
    "--extensions",
    is_flag=True,
    help="For brokers with Apache's extensible load manager: read their topic.",
)
@click.option("--json", "in_json", is_flag=True, help="A JSON object a line.")
@click.option(
    "-i",
    "--interval",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Show at least every so many seconds; a change is shown at once.",
)
@click.option("--once", is_flag=True, help="Show once and end.")
def monitor_brokers(
    connect_string: str, extensions: bool, in_json: bool, interval: float, once: bool
) -> None:
    """Show what the brokers of a cluster report of their load, until Ctrl-C."""
    followed = follow_topic if extensions else _follow_store

    async def main() -> None:
        with _screen(in_json=in_json, in_place=not once) as show:
            await followed(connect_string, show, interval, once)

    run(main)


@contextmanager
def _screen(*, in_json: bool, in_place: bool) -> Iterator[Show]:
    """Shows rows as JSON lines, as tables one after the other, or in place on a terminal."""
    from geminga.cli._broker_rows import as_json, table

    if in_json:
        yield lambda rows, leader: click.echo(as_json(rows, leader, time.time()))
        return
    from rich.console import Console
    from rich.live import Live

    if not sys.stdout.isatty():
        console = Console(width=WIDTH_WITHOUT_TERMINAL)
        yield lambda rows, leader: console.print(table(rows, leader, time.time()))
    elif not in_place:
        console = Console()
        yield lambda rows, leader: console.print(table(rows, leader, time.time()))
    else:
        with Live(auto_refresh=False) as live:
            yield lambda rows, leader: live.update(table(rows, leader, time.time()), refresh=True)


async def _follow_store(connect_string: str, show: Show, interval_s: float, once: bool) -> None:
    """Read the reports at the start, at each change and each interval."""
    import trio

    from geminga_runtime.metadata.api import MetadataError
    from geminga_runtime.metadata.zookeeper_url import with_scheme
    from geminga_runtime.settings import ConfigError

    try:
        from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

        store = await ZooKeeperMetadataStore.open(with_scheme(connect_string))
    except (ImportError, ConfigError) as error:
        raise click.UsageError(f"--connect-string: {error}") from None
    except MetadataError as error:
        raise click.ClickException(f"{connect_string}: {error}") from None
    try:
        await follow(store, connect_string, show, interval_s, once=once)
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def follow(
    store: MetadataStore, name: str, show: Show, interval_s: float, *, once: bool = False
) -> None:
    """Show the reports of a store now, and then at each change and each interval until cancelled.
    Raises ClickException with the store's `name` if `once` can't be done.
    """
    import trio

    from geminga_runtime.metadata.api import MetadataError

    async with store.watch("/loadbalance") as changes:
        while True:
            try:
                show(*await _read(store))
            except MetadataError as error:
                if once:
                    raise click.ClickException(f"{name}: {error}") from None
                click.echo(f"{name}: {error}", err=True)
            if once:
                return
            with trio.move_on_after(interval_s):
                await changes.receive()
                await trio.sleep(PAUSE_S)
                while changes.statistics().current_buffer_used:
                    changes.receive_nowait()


async def _read(store: MetadataStore) -> tuple[Rows, str]:
    """All reports, and the leader's id. Raises MetadataError."""
    from geminga.cli._broker_rows import leader_of, row_of

    rows = {}
    for broker in await store.children(BROKERS):
        report = await store.get(f"{BROKERS}/{broker}")
        averages = await store.get(f"{AVERAGES}/{broker}")
        if report is not None:
            rows[broker] = row_of(report.value, b"" if averages is None else averages.value)
    leader = await store.get(LEADER)
    return rows, "" if leader is None else leader_of(leader.value)


async def follow_topic(url: str, show: Show, interval_s: float, once: bool) -> None:
    """Read the topic of the extensible load manager until cancelled, with `once` until there is a
    report. It keeps nothing, so brokers show with their next one. Raises GemingaError.
    """
    import trio

    import geminga
    from geminga.cli._broker_rows import row_of_extension

    rows: Rows = {}
    async with (
        geminga.connect(url) as client,
        await client.create_reader(EXTENSION_TOPIC, geminga.LATEST) as reader,
    ):
        while True:
            if rows or not once:
                show(rows, "")
            if once and rows:
                return
            with trio.move_on_after(interval_s):
                message = await reader.read_next()
                broker = message.partition_key or ""
                if message.is_null or not message.data:
                    rows.pop(broker, None)
                else:
                    rows[broker] = row_of_extension(message.data)

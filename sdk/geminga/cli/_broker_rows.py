"""Rows of `geminga perf monitor-brokers`, made of the reports of ours and of Apache's brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from geminga_runtime.json_text import BadJson, read_json

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


class _Usage(msgspec.Struct):
    usage: float = 0.0
    limit: float = 0.0

    def percent(self) -> float:
        return 100 * self.usage / self.limit if self.limit > 0 and self.usage > 0 else 0.0


class _Resources(msgspec.Struct, rename="camel"):
    cpu: _Usage = msgspec.field(default_factory=_Usage)
    memory: _Usage = msgspec.field(default_factory=_Usage)
    direct_memory: _Usage = msgspec.field(default_factory=_Usage)
    bandwidth_in: _Usage = msgspec.field(default_factory=_Usage)
    bandwidth_out: _Usage = msgspec.field(default_factory=_Usage)


class _Local(_Resources, rename="camel"):
    """The modular load manager's LocalBrokerData, and the extensible one's BrokerLoadData."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    num_topics: int = 0
    topics: int = 0
    num_bundles: int = 0
    bundle_count: int = 0
    num_producers: int = 0
    num_consumers: int = 0
    last_bundle_gains: list[str] = []
    last_bundle_losses: list[str] = []
    last_update: int = 0
    reported_at: int = 0


class _Stats(msgspec.Struct, rename="camel"):
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0


class _Simple(msgspec.Struct, rename="camel"):
    """The simple load manager's LoadReport."""

    system_resource_usage: _Resources = msgspec.field(default_factory=_Resources)
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    num_topics: int = 0
    num_bundles: int = 0
    num_producers: int = 0
    num_consumers: int = 0
    bundle_stats: dict[str, _Stats] = {}
    bundle_gains: list[str] = []
    bundle_losses: list[str] = []
    allocated_msg_rate_in: float = 0.0
    allocated_msg_rate_out: float = 0.0
    timestamp: int = 0


class _Averages(msgspec.Struct, rename="camel"):
    short_term_msg_rate_in: float = 0.0
    short_term_msg_rate_out: float = 0.0
    long_term_msg_rate_in: float = 0.0
    long_term_msg_rate_out: float = 0.0


class _Leader(msgspec.Struct, rename="camel"):
    broker_id: str = ""
    service_url: str = ""


class _Kind(msgspec.Struct, rename="camel"):
    load_report_type: str = ""


@dataclass(frozen=True)
class BrokerRow:
    """A broker's load. Rates a second, throughput in bytes, shares in percent; `max_percent` is
    Apache's: without the memory. `short_rate` and `long_rate` are the leader's averages of messages
    in and out, for the simple load manager what its quotas allot; None if there are none.
    """

    topics: int = 0
    bundles: int = 0
    bundles_gained: int = 0
    bundles_lost: int = 0
    producers: int = 0
    consumers: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    short_rate: float | None = None
    long_rate: float | None = None
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    direct_memory_percent: float = 0.0
    bandwidth_in_percent: float = 0.0
    bandwidth_out_percent: float = 0.0
    updated_ms: int = 0
    error: str = ""
    """Why nothing else is known."""

    @property
    def max_percent(self) -> float:
        """The fullest resource."""
        return max(
            self.cpu_percent,
            self.direct_memory_percent,
            self.bandwidth_in_percent,
            self.bandwidth_out_percent,
        )


Rows: TypeAlias = dict[str, BrokerRow]
"""By the broker's id."""


def row_of(report: bytes, averages: bytes) -> BrokerRow:
    """A broker's row, of its node and the leader's node about it, which may be empty."""
    try:
        kind = read_json(report, _Kind, strict=False).load_report_type
        if kind == "LoadReport":
            return _of_simple(read_json(report, _Simple, strict=False))
        local = read_json(report, _Local, strict=False)
    except BadJson as error:
        return BrokerRow(error=f"the report can't be read: {error}")
    try:
        average = read_json(averages, _Averages, strict=False)
    except BadJson:
        return _of_local(local, None)
    return _of_local(local, average)


def row_of_extension(data: bytes) -> BrokerRow:
    """A row of a message of the extensible load manager."""
    return row_of(data, b"")


def leader_of(value: bytes) -> str:
    """The id in the leader's record."""
    try:
        leader = read_json(value, _Leader, strict=False)
    except BadJson:
        return ""
    return leader.broker_id or leader.service_url.partition("://")[2]


def _of_local(data: _Local, averages: _Averages | None) -> BrokerRow:
    short = long = None
    if averages is not None:
        short = averages.short_term_msg_rate_in + averages.short_term_msg_rate_out
        long = averages.long_term_msg_rate_in + averages.long_term_msg_rate_out
    return BrokerRow(
        data.num_topics or data.topics,
        data.num_bundles or data.bundle_count,
        len(data.last_bundle_gains),
        len(data.last_bundle_losses),
        data.num_producers,
        data.num_consumers,
        data.msg_rate_in,
        data.msg_rate_out,
        data.msg_throughput_in,
        data.msg_throughput_out,
        short,
        long,
        *_percents(data),
        data.last_update or data.reported_at,
    )


def _of_simple(data: _Simple) -> BrokerRow:
    return BrokerRow(
        data.num_topics,
        data.num_bundles,
        len(data.bundle_gains),
        len(data.bundle_losses),
        data.num_producers,
        data.num_consumers,
        data.msg_rate_in,
        data.msg_rate_out,
        sum(each.msg_throughput_in for each in data.bundle_stats.values()),
        sum(each.msg_throughput_out for each in data.bundle_stats.values()),
        None,
        data.allocated_msg_rate_in + data.allocated_msg_rate_out,
        *_percents(data.system_resource_usage),
        data.timestamp,
    )


def _percents(used: _Resources) -> tuple[float, float, float, float, float]:
    return (
        used.cpu.percent(),
        used.memory.percent(),
        used.direct_memory.percent(),
        used.bandwidth_in.percent(),
        used.bandwidth_out.percent(),
    )


def as_json(rows: Rows, leader: str, now_s: float) -> str:
    """All brokers in one line."""
    brokers = {broker: _described(row) for broker, row in rows.items()}
    told = {"time": int(now_s * 1000), "leader": leader or None, "brokers": brokers}
    return msgspec.json.encode(told).decode()


def _described(row: BrokerRow) -> dict[str, object]:
    if row.error:
        return {"error": row.error}
    found: dict[str, object] = msgspec.to_builtins(row)
    del found["error"]
    return found | {"max_percent": row.max_percent}


_LOAD = ("TOPIC", "BUNDLE", "+/-", "PROD", "CONS")
_RATES = ("MSG/S IN", "OUT", "KB/S IN", "OUT")
_SHARES = ("CPU %", "MEM %", "DIR %", "IN %", "OUT %", "MAX %")
_AVERAGES = ("SHORT/S", "LONG/S")


def table(rows: Rows, leader: str, now_s: float) -> Group:
    """All brokers and their sum, under Apache's headings: what they serve, how busy they are."""
    from rich.console import Group
    from rich.text import Text

    title = f"{len(rows)} broker{'' if len(rows) == 1 else 's'}"
    served = _empty_table(*_LOAD, *_RATES)
    used = _empty_table(*_SHARES, *_AVERAGES, "AGE")
    errors = []
    for broker, row in sorted(rows.items()):
        if row.error:
            errors.append(Text(f"{broker}: {row.error}", style="red"))
            continue
        age_s = max(0, int(now_s - row.updated_ms / 1000))
        served.add_row(Text(broker), *_served(row))
        used.add_row(Text(broker), *_used(row), f"{age_s} s" if row.updated_ms else "")
    valid = [row for row in rows.values() if not row.error]
    if len(valid) > 1:
        total = _total(valid)
        for made, cells in ((served, _served(total)), (used, _used(total))):
            made.add_section()
            made.add_row("TOTAL", *cells)
    heading = Text(f"{title}, leader {leader}" if leader else title)
    return Group(heading, served, used, *errors)


def _empty_table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    made.add_column("BROKER", overflow="fold", min_width=14)
    for name in columns:
        made.add_column(name, justify="right")
    return made


def _served(row: BrokerRow) -> list[str]:
    rates = (row.rate_in, row.rate_out, row.throughput_in / 1024, row.throughput_out / 1024)
    counts = (row.producers, row.consumers)
    return [
        *(str(row.topics), str(row.bundles), f"+{row.bundles_gained}-{row.bundles_lost}"),
        *map(str, counts),
        *map(_short, rates),
    ]


def _used(row: BrokerRow) -> list[str]:
    shares = (
        *(row.cpu_percent, row.memory_percent, row.direct_memory_percent),
        *(row.bandwidth_in_percent, row.bandwidth_out_percent, row.max_percent),
    )
    averages = (row.short_rate, row.long_rate)
    return [
        *(f"{share:.1f}" for share in shares),
        *("" if rate is None else _short(rate) for rate in averages),
    ]


def _short(value: float) -> str:
    """A number in at most six characters."""
    for unit in ("", "k", "M"):
        if value < 9999.5:
            return f"{value:.1f}{unit}" if value < 999.95 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.0f}G"


def _total(rows: list[BrokerRow]) -> BrokerRow:
    """Sums; of shares the highest."""
    return BrokerRow(
        sum(row.topics for row in rows),
        sum(row.bundles for row in rows),
        sum(row.bundles_gained for row in rows),
        sum(row.bundles_lost for row in rows),
        sum(row.producers for row in rows),
        sum(row.consumers for row in rows),
        sum(row.rate_in for row in rows),
        sum(row.rate_out for row in rows),
        sum(row.throughput_in for row in rows),
        sum(row.throughput_out for row in rows),
        sum(row.short_rate or 0.0 for row in rows),
        sum(row.long_rate or 0.0 for row in rows),
        max(row.cpu_percent for row in rows),
        max(row.memory_percent for row in rows),
        max(row.direct_memory_percent for row in rows),
        max(row.bandwidth_in_percent for row in rows),
        max(row.bandwidth_out_percent for row in rows),
    )

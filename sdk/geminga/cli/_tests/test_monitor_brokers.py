"""`geminga perf monitor-brokers`: what is shown of reports, and when."""

from __future__ import annotations

import io
import json

import msgspec
import pytest
import trio
from click.testing import CliRunner
from rich.console import Console
from trio.testing import MockClock

import geminga
from geminga.cli._broker_rows import BrokerRow, Rows, as_json, leader_of, row_of, table
from geminga.cli.monitor_brokers import EXTENSION_TOPIC, follow, follow_topic
from geminga.cli.perf import perf
from geminga.testing import open_broker
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

LOCAL = {
    "loadReportType": "LocalBrokerData",
    "webServiceUrl": "http://one:8080",
    "cpu": {"usage": 120.0, "limit": 400.0},
    "memory": {"usage": 900.0, "limit": 1000.0},
    "directMemory": {"usage": 100.0, "limit": 1000.0},
    "bandwidthIn": {"usage": 5.0, "limit": 0.0},
    "bandwidthOut": {"usage": 500.0, "limit": 1000.0},
    "msgRateIn": 10.5,
    "msgRateOut": 20.0,
    "msgThroughputIn": 1024.0,
    "msgThroughputOut": 2048.0,
    "numTopics": 7,
    "numBundles": 3,
    "numProducers": 4,
    "numConsumers": 5,
    "lastBundleGains": ["a/b/0x00000000_0x80000000"],
    "lastBundleLosses": [],
    "lastUpdate": 1_000_000,
    "somethingNew": {"x": 1},
}
AVERAGES = {
    "shortTermMsgRateIn": 1.0,
    "shortTermMsgRateOut": 2.0,
    "longTermMsgRateIn": 3.0,
    "longTermMsgRateOut": 4.0,
}
SIMPLE = {
    "loadReportType": "LoadReport",
    "name": "two:8080",
    "systemResourceUsage": {"cpu": {"usage": 50.0, "limit": 100.0}},
    "bundleStats": {
        "a/b/0x00000000_0xffffffff": {"msgThroughputIn": 512.0, "msgThroughputOut": 1.0}
    },
    "msgRateIn": 1.0,
    "numTopics": 1,
    "numBundles": 1,
    "allocatedMsgRateIn": 40.0,
    "allocatedMsgRateOut": 120.0,
    "timestamp": 1_000_000,
}


def _row(report: object, averages: object = None) -> BrokerRow:
    return row_of(json.dumps(report).encode(), json.dumps(averages).encode() if averages else b"")


def test_a_report_of_the_modular_load_manager() -> None:
    row = _row(LOCAL, AVERAGES)
    assert (row.topics, row.bundles, row.bundles_gained, row.bundles_lost) == (7, 3, 1, 0)
    assert (row.producers, row.consumers) == (4, 5)
    assert (row.rate_in, row.rate_out) == (10.5, 20.0)
    assert (row.short_rate, row.long_rate) == (3.0, 7.0)
    assert (row.cpu_percent, row.memory_percent, row.bandwidth_in_percent) == (30.0, 90.0, 0.0)
    # Memory doesn't count, as in Apache's getMaxResourceUsage.
    assert row.max_percent == 50.0


def test_a_report_of_the_simple_load_manager() -> None:
    row = _row(SIMPLE)
    assert (row.throughput_in, row.long_rate, row.short_rate) == (512.0, 160.0, None)
    assert row.max_percent == 50.0


def test_a_message_of_the_extensible_load_manager() -> None:
    row = _row(
        {"cpu": {"usage": 1.0, "limit": 2.0}, "bundleCount": 9, "topics": 3, "reportedAt": 5}
    )
    assert (row.bundles, row.topics, row.cpu_percent, row.updated_ms) == (9, 3, 50.0, 5)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{", b'{"cpu": 7}', b'{"msgRateIn": "x"}', b'"\xff"']
)
def test_a_report_that_is_none_is_named(value: bytes) -> None:
    row = row_of(value, b"")
    assert row.error
    assert "[bold]:80: the report can't be read" in _text({"[bold]:80": row})
    assert json.loads(as_json({"x:80": row}, "", 1.0))["brokers"]["x:80"].keys() == {"error"}


def _text(rows: Rows, leader: str = "") -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(table(rows, leader, 1060.0))
    return console.export_text()


def test_the_table_has_apaches_headings_and_a_total() -> None:
    shown = _text({"two:8080": _row(SIMPLE), "[::1]:8080": _row(LOCAL, AVERAGES)}, "two:8080")
    assert "2 brokers, leader two:8080" in shown
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    heads = [line for line in lines if "BROKER" in line]
    assert ["MSG/S IN" in head for head in heads] == [True, False]
    assert ["MAX %" in head for head in heads] == [False, True]
    served, used = (line for line in lines if "[::1]:8080" in line)
    assert "10.5" in served
    assert "60 s" in used
    served, used = (line for line in lines if "TOTAL" in line)
    assert "11.5" in served
    assert "167.0" in used


def test_json_has_all_figures() -> None:
    told = json.loads(as_json({"one:8080": _row(LOCAL, AVERAGES)}, "one:8080", 12.5))
    assert told["time"] == 12_500
    assert told["leader"] == "one:8080"
    found = told["brokers"]["one:8080"]
    assert (found["rate_in"], found["max_percent"], found["long_rate"]) == (10.5, 50.0, 7.0)
    assert "error" not in found


def test_the_leader() -> None:
    assert leader_of(b'{"brokerId":"a:80","serviceUrl":"http://a:80"}') == "a:80"
    assert leader_of(b'{"serviceUrl":"http://a:80"}') == "a:80"
    assert leader_of(b"x") == leader_of(b'{"brokerId":"\xff"}') == ""


async def test_changes_are_shown_at_once_and_else_each_interval(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    shown: list[tuple[float, Rows, str]] = []

    def show(rows: Rows, leader: str) -> None:
        shown.append((trio.current_time(), rows, leader))

    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, store, "here", show, 60.0)
        await trio.sleep(5)
        await store.put("/loadbalance/brokers/one:8080", json.dumps(LOCAL).encode())
        await store.put("/loadbalance/leader", b'{"brokerId":"one:8080"}')
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert [round(at - begin) for at, _, _ in shown] == [0, 6, 66]
    assert shown[0][1] == {}
    assert shown[1][1]["one:8080"].topics == 7
    assert shown[1][2] == "one:8080"
    await store.aclose()


async def test_a_store_that_is_away_is_asked_again(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    class Away(MemoryMetadataStore):
        away = True

        async def children(self, path: str) -> list[str]:
            if self.away:
                raise StoreUnavailable("no answer")
            return list(await super().children(path))

    store = Away()
    shown: list[Rows] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, store, "here", lambda rows, leader: shown.append(rows), 60.0)
        await trio.sleep(5)
        assert shown == []
        store.away = False
        await trio.sleep(60)
        assert shown == [{}]
        nursery.cancel_scope.cancel()
    assert "here: no answer" in capsys.readouterr().err
    await store.aclose()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "Missing option '--connect-string'"),
        (["--connect-string", "a:b:c"], "--connect-string"),
        (["--connect-string", "etcd:x"], "--connect-string"),
        (["--connect-string", "ftp://x", "--extensions"], "service_url must begin with"),
        (["--connect-string", "x", "-i", "0"], "-i"),
    ],
)
def test_bad_flags_are_one_sentence(flags: list[str], sentence: str) -> None:
    result = CliRunner().invoke(perf, ["monitor-brokers", *flags])
    assert result.exit_code == 2, result.output
    assert sentence in result.output


def test_numbers_as_texts_are_read() -> None:
    """As Jackson does."""
    row = row_of(msgspec.json.encode(LOCAL | {"numTopics": "12"}), b"")
    assert row.topics == 12


async def test_the_topic_of_the_extensible_load_manager() -> None:
    """Brokers come and go with their messages."""
    shown: list[dict[str, int]] = []
    seen = trio.Event()

    def show(rows: Rows, leader: str) -> None:
        nonlocal seen
        shown.append({broker: row.bundles for broker, row in rows.items()})
        seen.set()
        seen = trio.Event()

    async with open_broker() as url, geminga.connect(url) as client, trio.open_nursery() as nursery:
        first = seen
        nursery.start_soon(follow_topic, url, show, 60.0, False)
        with trio.fail_after(30):
            await first.wait()
        producer = await client.create_producer(EXTENSION_TOPIC)
        for broker, value in (
            ("a:8080", b'{"bundleCount":3}'),
            ("b:8080", b'{"bundleCount":4}'),
            ("a:8080", b""),
        ):
            now = seen
            await producer.send(value, partition_key=broker)
            with trio.fail_after(30):
                await now.wait()
        nursery.cancel_scope.cancel()
    assert shown == [{}, {"a:8080": 3}, {"a:8080": 3, "b:8080": 4}, {"b:8080": 4}]

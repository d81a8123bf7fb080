"""`geminga doctor` at a running broker, and how it judges figures."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import cast

import pytest
import trio
import trio.testing
from click.testing import CliRunner, Result

import geminga
import geminga.blocking
import geminga.testing
from geminga._admin.errors import RequestTimeoutError, ServerError
from geminga._admin.families.brokers import Brokers, BrokerStats
from geminga._admin.requests import Request
from geminga.cli._access import Access
from geminga.cli.admin.calls import Calls
from geminga.cli.doctor import doctor
from geminga.cli.doctor.looks import (
    _brokers,
    _health,
    all_topics,
    guarded,
    port,
    service_url_of,
)
from geminga.cli.doctor.report import (
    Backlog,
    Line,
    as_json,
    as_text,
    backlogs,
    clock,
    exit_code,
    size,
    space,
    summary,
    whole,
)
from geminga_runtime.http.answers import HttpAnswer

NOW_S = 1_800_000_000.0


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[geminga.blocking.Client]:
    with geminga.blocking.connect(url) as found:
        yield found


def ask(url: geminga.testing.BrokerUrl, *more: str) -> Result:
    return CliRunner().invoke(doctor, ["--admin-url", url.web_url, *more], catch_exceptions=False)


def told(result: Result) -> dict[str, dict[str, str]]:
    return {line["check"]: line for line in json.loads(result.output)["findings"]}


def test_a_server_that_is_well(url: geminga.testing.BrokerUrl) -> None:
    result = ask(url, "--json")
    found = told(result)
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["ok"] is True
    wanted = ("web", "version", "clock", "health", "brokers", "disk", "port", "backlog")
    assert set(found) == set(wanted)
    assert found["clock"]["sentence"] == "The clocks differ by less than 2 s."
    assert "keeps everything in memory" in found["disk"]["sentence"]
    assert url in found["port"]["sentence"]  # as the cluster's record names it
    assert {line["level"] for line in found.values()} == {"ok"}


def test_a_blocked_subscription_is_found_and_explained(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    with client.subscribe("blocked", "s", receiver_queue_size=1):
        with client.create_producer("blocked", batching_enabled=False) as producer:
            for _ in range(5):
                producer.send(b"x")
        result = ask(url)
        assert result.exit_code == 1
        wanted = "fail: s on persistent://public/default/blocked: No permits are left: consumer "
        assert any(line.startswith(wanted) for line in result.output.splitlines())
        assert "the largest is 5 of s on persistent://public/default/blocked" in result.output
        for topic in ("blocked", "public/default/blocked", "persistent://public/default/blocked"):
            found = told(ask(url, "--json", topic, "-s", "s"))
            assert found["NO_PERMITS"]["level"] == "fail"
            assert found["NO_PERMITS"]["topic"] == "persistent://public/default/blocked"
            assert found["NO_PERMITS"]["subscription"] == "s"
            assert "topic" not in found["web"]
            assert "backlog" not in found
    with client.subscribe("blocked", "s") as consumer:
        for _ in range(5):
            consumer.acknowledge(consumer.receive(timeout_s=10))


def test_consumers_that_are_away_are_no_fault_of_the_server(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    client.subscribe("away", "s").close()
    with client.create_producer("away") as producer:
        producer.send(b"x")
    found = told(ask(url, "--json"))
    assert found["NO_CONSUMERS"]["level"] == "warn"
    result = ask(url, "away", "-s", "s")
    assert result.exit_code == 1
    assert "fail: s on persistent://public/default/away: No consumer is connected" in result.output
    with client.subscribe("away", "s") as consumer:
        consumer.acknowledge(consumer.receive(timeout_s=10))


class Records:
    """A web service that knows clusters."""

    def __init__(self, **clusters: dict[str, str]) -> None:
        self.clusters = clusters

    def call(self, _operation: object) -> object:
        return list(self.clusters)

    def ask(self, request: Request) -> HttpAnswer:
        name = request.path.rpartition("/")[2]
        return HttpAnswer(200, {}, json.dumps(self.clusters[name]).encode())


def record(host: str) -> dict[str, str]:
    return {
        "brokerServiceUrl": f"pulsar://{host}:6650",
        "brokerServiceUrlTls": f"pulsar+ssl://{host}:6651",
    }


@pytest.mark.parametrize(
    ("asked", "hosts", "found"),
    [
        ("https://one:8443", ("one",), "pulsar+ssl://one:6651"),
        ("http://one:8080", ("evil", "one"), "pulsar://one:6650"),
        ("http://one:18080", ("evil",), "pulsar://one:6650"),
        ("https://one:18443", ("evil",), "pulsar+ssl://one:6651"),
        ("http://localhost:8080", ("127.0.0.1",), "pulsar://127.0.0.1:6650"),
        ("http://[::1]:8080", (), "pulsar://[::1]:6650"),
    ],
)
def test_credentials_go_where_the_web_service_is(
    asked: str, hosts: tuple[str, ...], found: str
) -> None:
    """Not to a host that an answer names, and not without TLS where that was asked for."""
    calls = cast(Calls, Records(**{f"c{n}": record(host) for n, host in enumerate(hosts)}))
    assert service_url_of(calls, asked) == found


def test_client_conf_s_address_stands_in_for_a_record() -> None:
    calls = cast(Calls, Records(one=record("one")))
    assert service_url_of(calls, "http://one:8080", "pulsar://conf:1") == "pulsar://one:6650"
    assert service_url_of(calls, "http://two:8080", "pulsar://conf:1") == "pulsar://conf:1"
    assert service_url_of(None, "http://one:8080", "pulsar://conf:1") == "pulsar://conf:1"


def test_no_broker_is_active() -> None:
    """The one that answers gave its registration up."""

    class Stopping:
        def call(self, operation: object, **_values: object) -> object:
            return [] if operation is Brokers.list else {"brokerId": "one:8080"}

    (line,) = _brokers(cast(Calls, Stopping()))
    assert (line.level, line.sentence[:20]) == ("fail", "No broker is active:")


def test_a_broker_without_its_metadata_store() -> None:
    class Cut:
        def call(self, operation: object, **_values: object) -> object:
            raise ServerError("there is no session with ZooKeeper")

    (line,) = _health(cast(Calls, Cut()))
    assert "metadata store" in line.advice
    (line,) = guarded(_brokers, cast(Calls, Cut()))
    assert line.level == "fail"
    assert "metadata store" in line.advice


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 1e300, 10**400, -1, "7", None])
def test_odd_figures_are_none(odd: object) -> None:
    line = space_of({"freeBytes": odd, "totalBytes": odd})
    assert len(line.sentence) < 200


def space_of(answer: dict[str, object]) -> Line:
    return space("b", whole(answer, "freeBytes"), whole(answer, "totalBytes"))


def test_topics_and_subscriptions_that_are_not_there(
    url: geminga.testing.BrokerUrl, client: geminga.blocking.Client
) -> None:
    client.create_producer("lonely").close()
    result = ask(url, "lonely")
    assert result.exit_code == 0
    assert "warn: persistent://public/default/lonely has no subscriptions" in result.output
    result = ask(url, "lonely", "-s", "s")
    assert result.exit_code == 1
    assert "has no subscription s; it has: none." in result.output
    result = ask(url, "missing")
    assert result.exit_code == 1
    assert "fail: persistent://public/default/missing: " in result.output


@pytest.mark.slow
def test_a_server_that_is_not_there() -> None:
    where = ["--admin-url", "http://127.0.0.1:9", "-u", "pulsar://127.0.0.1:9"]
    result = CliRunner().invoke(doctor, where)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("fail: The web service can't be asked: ")
    assert any(line.startswith("fail: The broker's port pulsar://127.0.0.1:9 ") for line in lines)
    # The topic that is looked up is not the user's.
    assert "no-such-topic" not in result.output


class Loading:
    """A client that takes long to be loaded, of a server that answers soon."""

    @asynccontextmanager
    async def connect(self, **_options: float) -> AsyncIterator[Loading]:
        await trio.sleep(3)
        yield self

    url = "pulsar://fake"

    async def list_partitions(self, _topic: str, *, auto_create: bool) -> list[str]:
        assert not auto_create
        await trio.sleep(0.02)
        return []


async def test_what_the_client_takes_to_load_is_not_the_servers_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    line = await port(cast("Access", Loading()), "t", 5)
    assert line.sentence.endswith(" answers in 20 ms.")


@pytest.mark.slow
def test_a_server_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        where = ["--admin-url", f"http://127.0.0.1:{port}", "-u", f"pulsar://127.0.0.1:{port}"]
        began_s = time.monotonic()
        result = CliRunner().invoke(doctor, [*where, "--request-timeout", "1"])
    assert result.exit_code == 1
    assert result.output.count("within 1 s") == 2, result.output
    assert time.monotonic() - began_s < 15


@pytest.mark.slow
def test_a_silent_web_service_is_asked_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(5)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = CliRunner().invoke(doctor, ["--admin-url", url, "--request-timeout", "1"])
        silent.accept()[0].close()
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert result.exit_code == 1


def test_no_more_is_asked_after_a_silence() -> None:
    asked: list[object] = []

    class Silent:
        def call(self, operation: object, **_values: object) -> object:
            asked.append(operation)
            if operation is BrokerStats.topics:
                topics = {f"t{n}": {"subscriptions": {"s": {"msgBacklog": 1}}} for n in range(9)}
                return {"public/default": {"b": {"persistent": topics}}}
            raise RequestTimeoutError("no answer within 5 s")

    lines = list(all_topics(cast(Calls, Silent())))
    assert len(asked) == 2
    assert (lines[-1].level, "no answer within 5 s" in lines[-1].sentence) == ("fail", True)


@pytest.mark.parametrize(
    "wrong",
    [
        ["-s", "s"],
        ["--auth-params", "token:a"],
        ["--admin-url", "ftp://x"],
        ["a//b"],
        ["--no-such"],
        ["a", "b"],
    ],
)
def test_wrong_usage(wrong: list[str]) -> None:
    assert CliRunner().invoke(doctor, wrong).exit_code == 2


@pytest.mark.parametrize(
    ("ahead_s", "level", "words"),
    [
        (0, "ok", "less than 2 s"),
        (10, "warn", "10 s ahead of"),
        (-10, "warn", "10 s behind"),
        (100, "fail", "100 s ahead of"),
    ],
)
def test_clocks(ahead_s: int, level: str, words: str) -> None:
    found = clock(formatdate(NOW_S + ahead_s, usegmt=True), NOW_S + 0.5)
    assert (found.level, words in found.sentence) == (level, True)


@pytest.mark.parametrize("date", [None, "", "yesterday", "99999"])
def test_a_server_without_a_clock(date: str | None) -> None:
    assert clock(date, NOW_S).level == "warn"


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [(50, 100, "ok"), (9, 100, "warn"), (4, 100, "fail"), (0, 0, "ok"), (None, None, "warn")],
)
def test_disks(free: int | None, total: int | None, level: str) -> None:
    assert space("b:3181", free, total).level == level


@pytest.mark.parametrize("total", [0, 100])
def test_a_read_only_bookie_fails_whatever_its_room_is(total: int) -> None:
    line = space("b:3181", 50, total, "the disk is full")
    assert line.level == "fail"
    assert "b:3181 takes no writes: the disk is full." in line.sentence
    assert "free space" in line.advice
    assert "writes again by itself" in line.advice


def test_sizes() -> None:
    shown = [size(count) for count in (0, 999, 1000, 12_345_678, 10**12, 10**16)]
    assert shown == ["0 B", "999 B", "1.0 kB", "12 MB", "1.0 TB", "10000.0 TB"]


def test_backlogs_of_all_topics() -> None:
    subscriptions = {
        "a": {"msgBacklog": 1, "msgRateOut": 0.0},
        "b": {"msgBacklog": 7, "msgRateOut": 2.5},
        "c": {"msgBacklog": 0},
        "d": "odd",
    }
    stats = {"t/n": {"0x0_0xf": {"persistent": {"p://t": {"subscriptions": subscriptions}}}}}
    found = backlogs(stats)
    assert found == [Backlog("p://t", "b", 7, still=False), Backlog("p://t", "a", 1, still=True)]
    assert "entries of all: 8; the largest is 7 of b" in summary(found, 1).sentence
    assert backlogs(None) == backlogs({"t/n": 3}) == []


def test_lines() -> None:
    lines = [Line("ok", "a", "Fine.", "unused"), Line("warn", "b", "Odd\x1b[2J.", "Do this.")]
    assert as_text(lines) == "ok: Fine.\nwarn: Odd?[2J.\n      Do this."
    assert exit_code(lines) == 0
    assert exit_code([*lines, Line("fail", "c", "Bad.")]) == 1
    assert json.loads(as_json(lines))["findings"][0]["check"] == "a"

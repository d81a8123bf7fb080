"""A page is that of its samples one by one, whichever way it is made, and is let go (OP-05)."""

from __future__ import annotations

import gc
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from random import Random

import pytest
import trio
from msgspec import Struct
from starlette.types import Message

from geminga_broker._tests.fake_client import FakeConnection, producer_request, subscribe_request
from geminga_broker._tests.wire import WireBroker, open_broker
from geminga_broker.metrics import pace, page
from geminga_broker.metrics import scrape as scraping
from geminga_broker.metrics._tests.test_scrape import config_with, loaded
from geminga_broker.metrics.exposition import (
    BLOCK_ROWS,
    CHUNK_BYTES,
    Exposition,
    Table,
    _Block,
    labels,
)
from geminga_broker.metrics.log_meter import Window
from geminga_broker.metrics.page import Chunked
from geminga_broker.metrics.scrape import scrape
from geminga_broker.metrics.series import (
    CONSUMER_SERIES,
    PRODUCER_SERIES,
    SUBSCRIPTION_SERIES,
    TOPIC_SERIES,
    Series,
)
from geminga_broker.metrics.settings import MetricsConfig
from geminga_broker.policies.quota import QuotaType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.stats import TopicStats, as_json
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import TURN_UNITS

MANY = 3 * BLOCK_ROWS + 5
ODD = (0, 0.0, -0.0, 1, True, False, None, 1.0, 2.5, float("nan"), 1 << 70)
HISTOGRAMS = (
    ("pulsar_storage_write_latency", "write_latency"),
    ("pulsar_storage_ledger_write_latency", "ledger_latency"),
    ("pulsar_entry_size", "entry_sizes"),
)


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_the_same_as_its_samples_one_by_one(seed: int) -> None:
    random = Random(seed)
    metrics = [f"pulsar_{number}" for number in range(4)]
    fast, slow = Exposition(), Exposition()
    table = Table(fast, metrics)
    by_kind = Table(fast, ["pulsar_kinds"], ("kind", ("a", "b")))
    idle = tuple(random.choices(ODD, k=len(metrics)))
    strange = random.choice((0.0, 0.01, 0.5))
    for number in range(random.choice((1, BLOCK_ROWS, MANY))):
        where = [("topic", f'"{number}"')]
        row = tuple(random.choices(ODD, k=4)) if random.random() < strange else idle
        counts = random.choice(((0, 0), (number, 1)))
        table.add(labels(where), row)
        by_kind.add(labels(where), counts)
        if random.random() < strange / 10:
            table.end()
        for metric, value in zip(metrics, row, strict=True):
            slow.rows(metric)
            if isinstance(value, int | float):
                slow.add(metric, labels(where), value)
        for kind, count in zip("ab", counts, strict=True):
            slow.add("pulsar_kinds", labels([*where, ("kind", kind)]), count)
    assert fast.render() == slow.render()


def test_chunks_are_of_moderate_size() -> None:
    text = Exposition()
    table = Table(text, ["pulsar_a", "pulsar_b"])
    for number in range(2 * CHUNK_BYTES // 100):
        where = labels([("topic", f"{number:80}")])
        table.add(where, (number, 0))
        text.add("pulsar_c", where, number)
    sizes = [len(chunk) for chunk in text.chunks()]
    assert sum(sizes) == len(text.render())
    assert len(sizes) >= 4
    assert min(sizes[:-1]) >= CHUNK_BYTES
    assert max(sizes) < 2 * CHUNK_BYTES


def blocks() -> int:
    return sum(type(each) is _Block for each in gc.get_objects())


def test_what_was_sent_is_let_go() -> None:
    text = Exposition()
    table = Table(text, ["pulsar_a", "pulsar_b"])
    for number in range(100 * BLOCK_ROWS):
        table.add(labels([("topic", f"{number:80}")]), (number, 0))
    before = blocks()
    chunks = text.chunks()
    size = len(text.render())
    del text, table
    sent = 0
    while sent < 0.8 * size:
        sent += len(next(chunks))
    assert blocks() < before - 50


async def test_a_page_is_sent_in_parts_without_a_length(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sent: list[tuple[bytes, bool]] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert message["headers"] == [(b"content-type", b"text/plain")]
        else:
            sent.append((message["body"], message.get("more_body", False)))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    for method, wanted in (
        ("GET", [(b"a", True), (b"b", True), (b"", False)]),
        ("HEAD", [(b"", False)]),
    ):
        answer = Chunked(iter([b"a", b"b"]), "text/plain", trio.Lock())
        await answer({"type": "http", "method": method}, receive, send)
        assert sent == wanted
        sent.clear()


async def test_a_page_whose_client_is_gone_is_not_made_on() -> None:
    made: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(9):
            made.append(number)
            yield b"a"

    async def send(message: Message) -> None:
        if len(made) == 3:
            raise BrokenPipeError

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await Chunked(chunks(), "text/plain", trio.Lock())(
        {"type": "http", "method": "GET"}, receive, send
    )
    assert made == [0, 1, 2]


async def test_many_pages_take_no_more_of_the_loop_than_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """In each pause of the loop's one of them goes on."""
    spent_s = 0.0
    monkeypatch.setattr(pace, "perf_counter", lambda: trio.current_time() + spent_s)
    monkeypatch.setattr(pace, "thread_time", lambda: 0.0)
    turns = trio.Lock()
    at: list[float] = []

    def chunks() -> Iterator[bytes]:
        nonlocal spent_s
        for _ in range(4):
            spent_s += 2 * page.SENDING_S  # a whole turn
            at.append(trio.current_time())
            yield b"a"

    async def send(message: Message) -> None:
        pass

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET"}
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            answer = Chunked(chunks(), "text/plain", turns)
            nursery.start_soon(answer, scope, receive, send)
    # After the first turn of each, one in a pause.
    later = at[5:]
    assert len(later) == 15
    assert all(b - a > 0.9 * pace.PAUSE_S for a, b in itertools.pairwise(later))


async def test_a_long_turn_ends_by_the_clock(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    now_s = 0.0
    monkeypatch.setattr(pace, "perf_counter", lambda: now_s)
    monkeypatch.setattr(pace, "thread_time", lambda: 0.0)
    paced = pace.Pace()
    began_s = trio.current_time()
    await paced.spend()
    assert trio.current_time() == began_s
    now_s += pace.TURN_S
    await paced.spend()
    assert trio.current_time() == began_s + pace.PAUSE_S
    await paced.spend()
    assert trio.current_time() == began_s + pace.PAUSE_S


async def test_a_page_leaves_others_more_time_when_they_have_work(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """For some seconds: then it goes on as on an idle broker."""
    used_s = 0.0
    monkeypatch.setattr(pace, "perf_counter", trio.current_time)
    monkeypatch.setattr(pace, "thread_time", lambda: used_s)
    paced = pace.Pace()
    began_s = trio.current_time()

    async def pause() -> float:
        paused_s = trio.current_time()
        await paced.spend(TURN_UNITS)
        return trio.current_time() - paused_s

    async def works(spent_s: float) -> None:
        nonlocal used_s
        await trio.sleep(pace.PAUSE_S / 2)
        used_s += spent_s

    for spent_s, wanted_s in (
        (pace.BUSY_S / 2, pace.PAUSE_S),
        (pace.BUSY_S * 2, pace.PAUSE_S + pace.BUSY_PAUSE_S),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(works, spent_s)
            assert await pause() == pytest.approx(wanted_s)
    await trio.sleep(began_s + pace.PATIENCE_S - trio.current_time())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(works, pace.BUSY_S * 2)
        assert await pause() == pytest.approx(pace.PAUSE_S)


Pairs = list[tuple[str, str]]
Line = tuple[str, str]
"""With its metric before it."""


def told(pairs: Pairs, samples: Iterable[tuple[str, object]]) -> Iterator[Line]:
    for metric, value in samples:
        if value is not None:
            number = int(value) if isinstance(value, bool) else value
            yield metric, f"{metric}{labels(pairs)} {number}"


def of_series(stats: Struct, series: Series) -> Iterator[tuple[str, object]]:
    figures = as_json(stats)
    for metric, field in series:
        yield metric, figures.get(field)


def one_by_one(broker: WireBroker, now_s: float) -> Iterator[Line]:
    """The lines of topics, subscriptions and clients."""
    cluster = [("cluster", broker.service.config.network.cluster_name)]
    config = broker.service.config.metrics
    for key, topic in sorted(broker.service.topics.loaded.items()):
        stats = topic.stats()
        pairs = [*cluster, ("namespace", "public/default"), ("topic", key)]
        yield from told(pairs, of_topic(stats))
        if isinstance(topic, PersistentTopic):
            yield from of_log(pairs, topic, topic.log.meter.window(now_s, config.period_s))
        for name, subscription in stats.subscriptions.items():
            where = [*pairs, ("subscription", name)]
            yield from told(where, of_series(subscription, SUBSCRIPTION_SERIES))
            consumers = subscription.consumers if config.consumers else []
            count = len(subscription.consumers)
            yield from told(where, [("pulsar_subscription_consumers_count", count)])
            for consumer in consumers:
                names = [("consumer_name", consumer.consumer_name), ("consumer_id", "7")]
                yield from told([*where, *names], of_series(consumer, CONSUMER_SERIES))
        for producer in stats.publishers if config.producers else []:
            names = [("producer_name", producer.producer_name)]
            names.append(("producer_id", str(producer.producer_id)))
            yield from told([*pairs, *names], of_series(producer, PRODUCER_SERIES))


def of_topic(stats: TopicStats) -> Iterator[tuple[str, object]]:
    yield from of_series(stats, TOPIC_SERIES)
    subscriptions = stats.subscriptions.values()
    yield "pulsar_producers_count", len(stats.publishers)
    yield "pulsar_subscriptions_count", len(subscriptions)
    yield "pulsar_consumers_count", sum(len(one.consumers) for one in subscriptions)
    yield "pulsar_msg_backlog", sum(one.msg_backlog for one in subscriptions)
    yield "pulsar_storage_size", stats.storage_size


def of_log(pairs: Pairs, topic: PersistentTopic, window: Window) -> Iterator[Line]:
    for name in ("write", "read"):
        rate = getattr(window, f"{name}_rate")
        yield from told(pairs, [(f"pulsar_storage_{name}_rate", rate)])
    for name, field in HISTOGRAMS:
        buckets = getattr(window, field)
        ends = [(f"{name}_sum", buckets[-1]), (f"{name}_count", sum(buckets[:-1]))]
        yield from told(pairs, ends)
    for kind, name in ((QuotaType.SIZE, "size"), (QuotaType.AGE, "time")):
        metric = "pulsar_storage_backlog_quota_exceeded_evictions_total"
        yield from told([*pairs, ("quota_type", name)], [(metric, topic.evictions[kind])])


async def topics_of_all_kinds(broker: WireBroker) -> None:
    for number in range(MANY):
        name = f"persistent://public/default/idle{number}"
        await broker.service.topics.get(TopicName.parse(name), create=True)
        if number % 40 == 0:
            name = f"non-persistent://public/default/t{number}"
            await broker.service.topics.get(TopicName.parse(name), create=True)
            topic = await loaded(broker, f"persistent://public/default/busy{number}", number, 50)
            topic.evictions[QuotaType.AGE] = number
            connection = FakeConnection("client")
            await topic.add_producer(producer_request(connection, "p"))
            for name in ("s", "other"):
                await topic.subscribe(subscribe_request(FakeConnection("client"), 7, name))


@pytest.mark.parametrize("clients", [False, True])
async def test_the_page_is_that_of_all_topics_one_by_one(
    clients: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    config = config_with(MetricsConfig(consumers=clients, producers=clients))
    async with open_broker(config) as broker:
        await topics_of_all_kinds(broker)
        monkeypatch.setattr(scraping, "perf_counter", lambda: 1e7)
        await trio.sleep(2)
        text = (await scrape(broker.service, version="1")).render()
        found: defaultdict[str, list[str]] = defaultdict(list)
        for line in text.splitlines():
            found[line.partition("{")[0]].append(line)
        wanted: defaultdict[str, list[str]] = defaultdict(list)
        for metric, line in one_by_one(broker, 1e7):
            wanted[metric].append(line)
        assert len(wanted) > 50
        for metric, lines in wanted.items():
            assert found[metric] == lines, metric
        [_, evicted] = found["pulsar_broker_storage_backlog_quota_exceeded_evictions_total"]
        assert evicted.endswith(f" {sum(range(0, MANY, 40))}")


async def test_backlogs_are_of_what_is_not_acknowledged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        stats = (await loaded(broker, "persistent://public/default/a", 5, 50)).stats()
        assert stats.backlog_size == stats.subscriptions["s"].backlog_size == 4 * 50
        assert stats.storage_size == 5 * 50


async def test_a_change_of_one_figure_is_seen_at_the_next_scrape(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Of one topic among idle ones; the lines of the others stay."""
    async with open_broker() as broker:
        await topics_of_all_kinds(broker)
        clock_s = [1e7]
        monkeypatch.setattr(scraping, "perf_counter", lambda: clock_s[-1])
        topic = broker.service.topics.loaded["persistent://public/default/idle70"]
        assert isinstance(topic, PersistentTopic)

        async def lines() -> list[str]:
            text = (await scrape(broker.service, version="1")).render()
            return [line for line in text.splitlines() if ',topic="' in line]

        for _ in range(2):  # then rates are of seconds without messages
            clock_s.append(clock_s[-1] + 1e7)
            await trio.sleep(2)
            before = await lines()

        async def changed() -> list[str]:
            """The other lines; the values of all have been the same, and the order."""
            nonlocal before
            now = await lines()
            pairs = [(old, new) for old, new in zip(before, now, strict=True) if old != new]
            before = now
            assert all(f'topic="{topic.name}"' in new for _old, new in pairs)
            return [new.partition("{")[0] + new.rpartition("}")[2] for _old, new in pairs]

        assert await changed() == []
        topic.evictions[QuotaType.SIZE] += 1
        assert await changed() == ["pulsar_storage_backlog_quota_exceeded_evictions_total 1"]
        topic.publishes_limited += 3
        assert await changed() == ["pulsar_publish_rate_limit_times 3"]
        topic.oldest_backlog_s = 9
        assert await changed() == ["pulsar_storage_backlog_age_seconds 9"]
        topic.rates.add(1, 10)
        assert set(await changed()) >= {"pulsar_in_bytes_total 10", "pulsar_in_messages_total 1"}
        topic.log.meter.read(1, 10)
        clock_s.append(4e7)
        assert "pulsar_storage_read_rate 1e-07" in await changed()

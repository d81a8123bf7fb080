"""Wrong arguments of consumers, readers and table views raise at the call, naming the argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, InitialPosition, KeySharedPolicy
from geminga._tests.fake_broker import fake_broker
from geminga.options import ConsumerOptions, DeadLetterPolicy, MultiplierBackoff
from geminga.schema import AutoProduce

NAN = float("nan")
PATTERN = re.compile("persistent://public/default/.*")

SUBSCRIBE: list[tuple[str, object]] = [
    *(("topic", value) for value in (None, b"t", "", " ", 5, [], [None], ["t", b"u"], {"t"})),
    *(("topic", value) for value in ("kafka://public/default/t", "persistent://public/t", "a/b")),
    *(("subscription_name", value) for value in (None, "", b"s", 5)),
    *(("message_listener", value) for value in ("print", 5)),
    *(("consumer_type", value) for value in (None, "Shared", 1)),
    *(("initial_position", value) for value in ("earliest", 0)),
    *(("consumer_name", value) for value in ("", 5, b"c")),
    *(("receiver_queue_size", value) for value in (-1, 1.5, "10", True, None)),
    *(("receiver_queue_total_max", value) for value in (0, 2.5)),
    ("auto_scaled_receiver_queue_size_enabled", 1),
    *(("ack_grouping_time_s", value) for value in (-0.1, "0", NAN)),
    *(("ack_grouping_max", value) for value in (0, 1.5)),
    ("ack_receipt_enabled", "yes"),
    ("batch_index_ack_enabled", 0),
    *(("negative_ack_redelivery_delay_s", value) for value in (-1, None, NAN)),
    ("negative_ack_backoff", 5),
    *(("ack_timeout_s", value) for value in (-1, None)),
    ("ack_timeout_backoff", (1, 2)),
    ("regex_subscription_mode", 0),
    ("pattern_auto_discovery_period_s", 0),
    ("auto_update_partitions", None),
    ("auto_update_partitions_interval_s", 0),
    ("retry_enabled", 1),
    ("consumer_event_listener", print),
    ("interceptors", print),
    ("interceptors", [print]),
    ("message_listener_concurrency", 0),
    ("message_listener_concurrency", 1.5),
    ("batch_receive_policy", 5),
    ("batch_receive_policy", (1, 2, 3)),
    ("read_compacted", 1),
    ("replicate_subscription_state", "no"),
    ("dead_letter_policy", {"max_redeliver_count": 3}),
    ("dead_letter_policy", 3),
    *(("priority_level", value) for value in (-1, 0.5)),
    ("durable", 0),
    ("auto_create", 0),
    ("start_message_id_inclusive", 1),
    ("key_shared_policy", KeySharedPolicy()),
    ("key_shared_policy", "sticky"),
    ("max_pending_chunked_messages", -1),
    ("auto_ack_oldest_chunked_message_on_queue_full", 1),
    ("expire_time_of_incomplete_chunked_message_s", -1),
    ("properties", {"a": 1}),
    ("properties", [("a", "b")]),
    ("subscription_properties", {1: "a"}),
    *(("schema", value) for value in (str, AutoProduce())),
    ("crypto_key_reader", "public.pem"),
    ("crypto_failure_action", "FAIL"),
    ("reciever_queue_size", 5),
]
TOGETHER: list[tuple[str, dict[str, object]]] = [
    ("read_compacted", {"read_compacted": True, "consumer_type": ConsumerType.SHARED}),
    ("read_compacted", {"read_compacted": True, "consumer_type": ConsumerType.KEY_SHARED}),
    ("read_compacted", {"read_compacted": True, "topic": "non-persistent://public/default/t"}),
    ("retry_letter_topic", {"dead_letter_policy": DeadLetterPolicy(retry_letter_topic="r")}),
    ("encryption_keys", {"dead_letter_policy": DeadLetterPolicy(encryption_keys=["k"])}),
    ("dead_letter_policy", {"dead_letter_policy": DeadLetterPolicy(3)}),
    (
        "dead_letter_policy.*SHARED or KEY_SHARED",
        {"dead_letter_policy": DeadLetterPolicy(3), "consumer_type": ConsumerType.FAILOVER},
    ),
    ("retry_enabled", {"retry_enabled": True, "topic": PATTERN}),
    ("receiver_queue_size", {"receiver_queue_size": 0, "topic": PATTERN}),
    ("receiver_queue_size", {"receiver_queue_size": 0, "topic": ["t", "u"]}),
]
READ: list[tuple[str, object]] = [
    *(("topic", value) for value in (None, "", ["t"], "a/b")),
    *(("start_message_id", value) for value in (None, 0, "earliest")),
    *(("reader_name", value) for value in ("", 5)),
    *(("subscription_name", value) for value in ("", 5)),
    ("subscription_role_prefix", None),
    ("read_compacted", 1),
    ("auto_create", "no"),
    *(("receiver_queue_size", value) for value in (0, 1.5, True)),
    ("start_message_id_inclusive", "yes"),
    *(("schema", value) for value in (str, AutoProduce())),
    ("crypto_key_reader", print),
    ("crypto_failure_action", 1),
    ("start", 5),
]
CALLS: list[tuple[str, str, tuple[object, ...]]] = [
    *(("receive", "timeout_s", (value,)) for value in (-1, "5", True, NAN)),
    *(("receive_batch", "max_messages", (value,)) for value in (0, 1.5, True, "5")),
    *(("acknowledge", "message", (value,)) for value in (None, b"m", "1:2", 5)),
    *(("acknowledge_all", "message", (value,)) for value in (None, 5, "m", [None])),
    *(("acknowledge_cumulative", "message", (value,)) for value in (None, 5)),
    *(("negative_acknowledge", "message", (value,)) for value in (None, 5)),
    *(("reconsume_later", "message", (value, 1)) for value in (None, geminga.EARLIEST)),
    *(("seek", "to", (value,)) for value in (None, "latest", -1, 1.5, True, 1 << 63)),
    ("seek", "to", (lambda topic: "latest",)),
]
KEYWORD_CALLS: list[tuple[str, str, object]] = [
    *(("receive_batch", "max_bytes", value) for value in (0, 0.5, "5")),
    *(("receive_batch", "wait_s", value) for value in (-1, "5")),
    *(("unsubscribe", "force", value) for value in (1, None)),
]


async def refuse(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=name):
        answer = call()
        if inspect.isawaitable(answer):
            await answer


async def test_subscribe(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        for name, value in SUBSCRIBE:
            arguments: dict[str, Any] = {"topic": "t", "subscription_name": "s", name: value}
            await refuse(lambda: client.subscribe(**arguments), name)  # noqa: B023
        for name, values in TOGETHER[:-1]:
            arguments = {"topic": "t", "subscription_name": "s", **values}
            await refuse(lambda: client.subscribe(**arguments), name)  # noqa: B023
        assert broker.seen == []
        name, values = TOGETHER[-1]
        arguments = {"subscription_name": "s", **values}
        await refuse(lambda: client.subscribe(**arguments), name)


def test_every_option_is_looked_at() -> None:
    looked_at = {name for name, _ in SUBSCRIBE}
    assert set(ConsumerOptions.__dataclass_fields__) <= looked_at


async def test_create_reader_and_table_view(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        for name, value in READ:
            arguments: dict[str, Any] = {"topic": "t", "start_message_id": geminga.EARLIEST}
            arguments[name] = value
            await refuse(lambda: client.create_reader(**arguments), name)  # noqa: B023
        options: Any = {"topic": "non-persistent://public/default/t", "read_compacted": True}
        await refuse(
            lambda: client.create_reader(start_message_id=geminga.EARLIEST, **options),
            "read_compacted",
        )
        bad: list[Any] = [None, 5, "", "a/b"]
        for topic in bad:
            await refuse(lambda: client.create_table_view(topic), "topic")  # noqa: B023
        assert broker.seen == []


async def test_calls(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        consumer: Any = await client.subscribe("t", "s")
        other = await client.subscribe("t", "other", initial_position=InitialPosition.EARLIEST)
        for n in range(3):
            await producer.send(b"%d" % n)
        foreign = await other.receive(5)
        calls = [*CALLS, ("acknowledge", "message", (foreign,))]
        calls += [("reconsume_later", "delay_s", (foreign, n)) for n in (-1, "1", NAN, None)]
        calls += [("reconsume_later", "delay_s", (foreign, float("inf")))]
        calls += [("acknowledge_all", "message", ([await consumer.receive(5), foreign],))]
        for method, name, arguments in calls:
            await refuse(lambda: getattr(consumer, method)(*arguments), name)  # noqa: B023
        for method, name, value in KEYWORD_CALLS:
            await refuse(lambda: getattr(consumer, method)(**{name: value}), name)  # noqa: B023
        await refuse(lambda: consumer.reconsume_later(foreign, 1, properties={"a": 1}), "propert")
        # Nothing of all that was done.
        assert [(await consumer.receive(5)).data for _ in range(2)] == [b"1", b"2"]
        assert consumer.statistics().total_acks_sent == 0
        reader: Any = await client.create_reader("t", geminga.EARLIEST)
        for value in (-1, "5"):
            await refuse(lambda: reader.read_next(value), "timeout_s")  # noqa: B023
        await refuse(lambda: reader.seek("start"), "to")
        view: Any = await client.create_table_view("t")
        await refuse(lambda: view.listen(5), "listener")
        await refuse(lambda: view.for_each_and_listen("print"), "listener")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("min_delay_s", (-1, 60)),
        ("min_delay_s", (61, 60)),
        ("max_delay_s", (0, 0)),
        ("multiplier", (1, 60, 0)),
        ("multiplier", (1, 60, "2")),
    ],
)
def test_backoffs(name: str, values: Any) -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=name):
        MultiplierBackoff(*values)


def test_policies() -> None:
    for count in (0, 1.5, True, None):
        with pytest.raises(geminga.InvalidArgumentError, match="max_redeliver_count"):
            DeadLetterPolicy(count)  # type: ignore[arg-type]
    bad: list[Any] = [((0, 1.5),), ([0, 5],), (5,), ((0, 5, 9),)]
    for ranges in bad:
        with pytest.raises(geminga.InvalidArgumentError, match="sticky_ranges"):
            KeySharedPolicy(ranges)

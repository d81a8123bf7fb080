"""Producers, consumers, readers and table views with schemas, on a broker in memory."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga import schema
from geminga._consuming import typed_inbox as _typed_inbox
from geminga._entries.value_reader import ValueReader
from geminga._tests.fake_broker import fake_broker
from geminga.schema import KeyValueEncodingType, SchemaInfo, SchemaType
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


@dataclass
class Order:
    id: int
    name: str = "none"


@dataclass
class Wider:
    id: int
    name: str = "none"
    extra: str = "more"


Wider.__name__ = "Order"
SEPARATED = KeyValueEncodingType.SEPARATED


@pytest.mark.parametrize("batched", [False, True])
async def test_avro_there_and_back(autojump_clock: MockClock, batched: bool) -> None:
    async with fake_broker() as broker, broker.client() as client:
        avro = schema.Avro(Order)
        consumer = await client.subscribe("t", "s", schema=avro)
        producer = await client.create_producer("t", schema=avro, batching_enabled=batched)
        receipts = [producer.send_nowait(Order(n, "x")) for n in range(3)]
        for n, receipt in enumerate(receipts):
            await receipt.wait()
            message = await consumer.receive()
            assert message.value == Order(n, "x")
            assert message.schema_version == bytes(8)
        assert broker.seen.count("getSchema") == 1
        with pytest.raises(geminga.InvalidValueError, match=r"Order\.id must be int"):
            await producer.send(Order("1"))  # type: ignore[arg-type]
        with pytest.raises(geminga.InvalidValueError, match="must be an Order"):
            producer.send_nowait(5)  # type: ignore[arg-type]


async def test_each_version_is_read_with_its_own_schema(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", schema=schema.Avro(Wider))
        old = await client.create_producer("t", schema=schema.Avro(Order))
        new = await client.create_producer("t", schema=schema.Avro(Wider))
        await old.send(Order(1, "a"))
        await new.send(Wider(2, "b", "c"))
        await old.send(Order(3))
        found = [(await consumer.receive()).value for _ in range(3)]
        assert found == [Wider(1, "a", "more"), Wider(2, "b", "c"), Wider(3, "none", "more")]
        assert broker.seen.count("getSchema") == 2


async def test_what_cannot_be_read_says_so_and_the_rest_goes_on(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", schema=schema.Avro(Order))
        raw = await client.create_producer("t")
        typed = await client.create_producer("t", schema=schema.Avro(Order))
        bad_id = await raw.send(b"\xff")
        await typed.send(Order(7))
        bad = await consumer.receive()
        with pytest.raises(geminga.UndecodableValueError, match=r"/t\b") as caught:
            _ = bad.value
        assert caught.value.message_id == bad_id
        assert caught.value.topic == bad.topic_name
        await consumer.acknowledge(bad)
        assert (await consumer.receive()).value == Order(7)


async def test_a_schema_that_cannot_be_had_is_asked_for_again(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", schema=schema.Avro(Order))
        producer = await client.create_producer("t", schema=schema.Avro(Order))
        broker.fail["getSchema"] = [(ServerError.AuthorizationError, "no")]
        await producer.send(Order(1))
        first = await consumer.receive()
        with pytest.raises(geminga.SchemaUnavailableError, match="no"):
            _ = first.value
        await producer.send(Order(2))
        assert (await consumer.receive()).value == Order(2)


async def test_pairs_and_nulls(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        pair = schema.KeyValue(schema.String(), schema.Int32(), SEPARATED)
        consumer = await client.subscribe("t", "s", schema=pair)
        producer = await client.create_producer("t", schema=pair)
        sent: list[Any] = [("a", 1), ("b", None), (None, 2)]
        for value in sent:
            await producer.send(value)
        assert [(await consumer.receive()).value for _ in sent] == sent
        with pytest.raises(geminga.InvalidArgumentError, match="partition_key"):
            await producer.send(("a", 1), partition_key="b")
        texts = await client.create_producer("u", schema=schema.String())
        reader = await client.create_reader("u", geminga.EARLIEST, schema=schema.String())
        await texts.send("")
        await texts.send(None)  # type: ignore[arg-type]
        assert (await reader.read_next()).value == ""
        null = await reader.read_next()
        assert null.value is None
        assert null.is_null


async def test_lying_lengths_in_a_pair(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        pair = schema.KeyValue(schema.String(), schema.String())
        consumer = await client.subscribe("t", "s", schema=pair)
        raw = await client.create_producer("t")
        for lie in (
            b"",
            b"\x00\x00\x00\x09ab",
            b"\x80\x00\x00\x00",
            b"\x00\x00\x00\x01a\x7f\xff\xff\xff",
        ):
            await raw.send(lie)
            with pytest.raises(geminga.UndecodableValueError, match="pair"):
                _ = (await consumer.receive()).value


async def test_auto(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        typed = await client.create_producer("t", schema=schema.Avro(Order))
        auto = await client.create_producer("t", schema=schema.AutoProduce())
        consumer = await client.subscribe("t", "s", schema=schema.AutoConsume())
        await typed.send(Order(1, "a"))
        await auto.send(schema.Avro(Order).encode(Order(2, "b")))
        with pytest.raises(geminga.InvalidValueError, match="data doesn't fit"):
            await auto.send(b"\xff")
        for n, name in ((1, "a"), (2, "b")):
            value = (await consumer.receive()).value
            assert isinstance(value, schema.GenericRecord)
            assert value == {"id": n, "name": name}
            assert value.schema_version == bytes(8)
        with pytest.raises(geminga.InvalidArgumentError, match="schema"):
            await client.create_producer("t", schema=schema.AutoConsume())
        with pytest.raises(geminga.InvalidArgumentError, match="schema"):
            await client.subscribe("t", "s2", schema=schema.AutoProduce())


async def test_no_schema_means_bytes(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s")
        auto = await client.create_producer("t", schema=schema.AutoProduce())
        await auto.send(b"x")
        message = await consumer.receive()
        assert (message.value, message.schema_version) == (b"x", None)
        with pytest.raises(geminga.InvalidArgumentError, match="schema"):
            await client.create_producer("t", schema=Order)  # type: ignore[arg-type]


async def test_interceptors_keep_what_they_do_not_see(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        pair = schema.KeyValue(schema.Bytes(), schema.Avro(Order), SEPARATED)
        consumer = await client.subscribe(
            "t", "s", schema=pair, interceptors=[geminga.ConsumerInterceptor()]
        )
        producer = await client.create_producer(
            "t", schema=pair, interceptors=[geminga.ProducerInterceptor()]
        )
        await producer.send((b"\xff", Order(1)))
        await producer.send((b"\xfe", None))
        assert (await consumer.receive()).value == (b"\xff", Order(1))
        assert (await consumer.receive()).value == (b"\xfe", None)


async def test_what_is_held_back_can_be_thrown_away(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", schema=schema.Avro(Order))
        producer = await client.create_producer("t", schema=schema.Avro(Order))
        for n in range(3):
            await producer.send(Order(n))
        broker.cut()
        assert [(await consumer.receive()).value.id for _ in range(3)] == [0, 1, 2]


async def test_table_view_of_values(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", schema=schema.Avro(Order))
        raw = await client.create_producer("t")
        view = await client.create_table_view("t", schema=schema.Avro(Order))
        seen: list[tuple[str, Order | None]] = []
        view.listen(lambda key, value: seen.append((key, value)))
        await producer.send(Order(1), partition_key="a")
        await raw.send(b"\xff", partition_key="a")
        await producer.send(Order(2), partition_key="b")
        await producer.send(None, partition_key="b")  # type: ignore[arg-type]
        await view.refresh()
        assert dict(view.items()) == {"a": Order(1)}
        assert seen == [("a", Order(1)), ("b", Order(2)), ("b", None)]


async def test_letters_are_read_as_the_messages_were(autojump_clock: MockClock) -> None:
    """Retry letters have another topic, where the schema has its own version."""
    async with fake_broker() as broker, broker.client() as client:
        pair = schema.KeyValue(schema.String(), schema.Avro(Order), SEPARATED)
        consumer = await client.subscribe(
            "t",
            "s",
            schema=pair,
            consumer_type=geminga.ConsumerType.SHARED,
            retry_enabled=True,
            dead_letter_policy=geminga.DeadLetterPolicy(1),
        )
        dead = await client.subscribe("t-s-DLQ", "d", schema=pair)
        retried = broker.topic("t-s-RETRY")
        retried.schemas.append(schema.String().info.to_wire())
        producer = await client.create_producer("t", schema=pair)
        await producer.send(("k", Order(1)))
        for _ in range(2):
            message = await consumer.receive()
            assert message.value == ("k", Order(1))
            await consumer.reconsume_later(message, 0)
        assert (await dead.receive()).value == ("k", Order(1))
        assert len(retried.schemas) == 2


async def test_large_values_go_in_chunks(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 2000
        avro = schema.Avro(Order)
        consumer = await client.subscribe("t", "s", schema=avro)
        producer = await client.create_producer(
            "t", schema=avro, batching_enabled=False, chunking_enabled=True
        )
        large = Order(1, "x" * 9000)
        await producer.send(large)
        message = await consumer.receive()
        assert (message.value, message.schema_version) == (large, bytes(8))
        assert len(broker.topic("t").entries) > 4


async def test_partitions_share_their_schemas(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 3
        avro = schema.Avro(Order)
        consumer = await client.subscribe("p", "s", schema=avro)
        producer = await client.create_producer("p", schema=avro, batching_enabled=False)
        for n in range(9):
            await producer.send(Order(n))
        values = [(await consumer.receive()).value for _ in range(9)]
        assert sorted(each.id for each in values) == list(range(9))
        assert broker.seen.count("getSchema") == 1


async def test_values_that_an_interceptor_changed(autojump_clock: MockClock) -> None:
    class Upper(geminga.ConsumerInterceptor):
        def before_consume(self, topic: str, message: geminga.Message) -> geminga.Message:
            return message.replace(data=message.data.upper())

    async with fake_broker() as broker, broker.client() as client:
        texts = schema.String()
        consumer = await client.subscribe("t", "s", schema=texts, interceptors=[Upper()])
        producer = await client.create_producer("t", schema=texts)
        await producer.send("abc")
        assert (await consumer.receive()).value == "ABC"


class Waiting:
    """Makes a consumer wait for a schema until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = trio.Event()
        real = _typed_inbox.schema_of

        async def schema_of(*arguments: Any) -> Any:
            await self.go_on.wait()
            return await real(*arguments)

        monkeypatch.setattr(_typed_inbox, "schema_of", schema_of)


async def test_order_is_kept_while_a_schema_is_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        waiting = Waiting(monkeypatch)
        consumer = await client.subscribe("t", "s", schema=schema.AutoConsume())
        typed = await client.create_producer("t", schema=schema.Avro(Order))
        raw = await client.create_producer("t")
        await typed.send(Order(1))
        await raw.send(b"needs no schema")
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(1)
        assert consumer.statistics().msg_num_in_receiver_queue == 2
        waiting.go_on.set()
        values = [(await consumer.receive()).value for _ in range(2)]
        assert values == [{"id": 1, "name": "none"}, b"needs no schema"]


async def test_nothing_that_waits_comes_twice(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        waiting = Waiting(monkeypatch)
        consumer = await client.subscribe("t", "s", schema=schema.Avro(Order))
        producer = await client.create_producer("t", schema=schema.Avro(Order))
        for n in range(3):
            await producer.send(Order(n))
        await trio.sleep(1)
        broker.cut()
        await trio.sleep(1)
        waiting.go_on.set()
        assert [(await consumer.receive()).value.id for _ in range(3)] == [0, 1, 2]
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(1)


async def test_chunks_that_wait_for_their_schema_are_asked_for_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader was past their first one when the connection was lost."""
    async with fake_broker() as broker, broker.client() as client:
        broker.max_message_size = 500
        waiting = Waiting(monkeypatch)
        chunking: dict[str, Any] = {"batching_enabled": False, "chunking_enabled": True}
        typed = await client.create_producer("t", schema=schema.Avro(Order), **chunking)
        raw = await client.create_producer("t")
        await typed.send(Order(1, "x" * 1000))
        await raw.send(b"between")
        entries = broker.topic("t").entries
        assert len(entries) > 3
        entries.insert(1, entries.pop())
        reader = await client.create_reader("t", geminga.EARLIEST, schema=schema.AutoConsume())
        assert (await reader.read_next(5)).value == b"between"
        await trio.sleep(1)
        broker.cut()
        await trio.sleep(1)
        waiting.go_on.set()
        assert (await reader.read_next(5)).value == {"id": 1, "name": "x" * 1000}
        assert reader.incomplete_message_ids() == []
        with pytest.raises(geminga.OperationTimeoutError):
            await reader.read_next(5)


JSON = st.recursive(
    st.none()
    | st.sampled_from(["record", "array", "long", "R", "enum", "string", "", "type", "null"])
    | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols"]), inner
        )
    ),
    max_leaves=12,
)


@given(
    JSON.map(lambda made: json.dumps(made).encode()) | st.binary(),
    st.sampled_from(SchemaType),
    st.dictionaries(
        st.sampled_from(["key.schema.type", "value.schema.type", "key.schema.properties"]),
        st.sampled_from(["AVRO", "STRING", "{}", "[", "no"]),
    ),
)
def test_any_schema_of_others_is_survived(
    definition: bytes, kind: SchemaType, properties: dict[str, str]
) -> None:
    info = SchemaInfo("", kind, definition, properties)
    pair = schema.KeyValue(schema.String(), schema.Avro(Order))
    for typed in (schema.Avro(Order), schema.AutoConsume(), pair):
        ValueReader(typed, info)
    with contextlib.suppress(geminga.InvalidSchemaError):
        schema.AutoProduce()._for_topic(info)


def test_a_schema_too_deep() -> None:
    info = SchemaInfo("", SchemaType.AVRO, b'{"type":' * 100_000)
    ValueReader(schema.Avro(Order), info)
    ValueReader(schema.AutoConsume(), info)

"""pydantic models through producers, consumers, readers and table views, in all three faces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, Field
from trio.testing import MockClock

import geminga
from geminga import schema
from geminga._tests.fake_broker import fake_broker

ROOT = Path(__file__).resolve().parents[3]
TYPED = """
from typing import assert_type

import geminga.aio
import geminga.blocking
from geminga import schema
from pydantic import BaseModel


class Order(BaseModel):
    id: int


assert_type(schema.Json(Order), schema.Json[Order])
assert_type(schema.Avro(Order).decode(b""), Order)


async def run(client: geminga.Client, other: geminga.aio.Client) -> None:
    producer = await client.create_producer("t", schema=schema.Avro(Order))
    await producer.send(Order(id=1))
    consumer = await client.subscribe("t", "s", schema=schema.Avro(Order))
    assert_type((await consumer.receive()).value, Order)
    reader = await other.create_reader("t", geminga.EARLIEST, schema=schema.Json(Order))
    assert_type((await reader.read_next()).value, Order)
    await producer.send("no order")


def run_blocking(client: geminga.blocking.Client) -> None:
    consumer = client.subscribe("t", "s", schema=schema.Json(Order))
    assert_type(consumer.receive().value, Order)
    client.create_producer("t", schema=schema.Json(Order)).send("no order")
"""


class Order(BaseModel):
    id: int = Field(gt=0)
    name: str = "none"


@pytest.mark.parametrize("made", [schema.Avro, schema.Json])
async def test_there_and_back(
    autojump_clock: MockClock, made: type[schema.Avro[Order] | schema.Json[Order]]
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        typed = made(Order)
        consumer = await client.subscribe("t", "s", schema=typed)
        producer = await client.create_producer("t", schema=typed)
        await producer.send(Order(id=1, name="x"), partition_key="k")
        message = await consumer.receive()
        assert message.value == Order(id=1, name="x")
        reader = await client.create_reader("t", geminga.EARLIEST, schema=typed)
        assert (await reader.read_next()).value == Order(id=1, name="x")
        view = await client.create_table_view("t", schema=typed)
        assert view.get("k") == Order(id=1, name="x")
        with pytest.raises(geminga.InvalidValueError, match=r"Order\.id: Input should be greater"):
            await producer.send(Order.model_construct(id=0, name="y"))


async def test_a_payload_that_is_no_model_raises_from_value(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", schema=schema.Json(Order))
        producer = await client.create_producer("t")
        await producer.send(b'{"id": -1}')
        message = await consumer.receive()
        with pytest.raises(geminga.UndecodableValueError, match=r"Order\.id: Input") as raised:
            assert message.value
        assert raised.value.topic == message.topic_name
        await consumer.acknowledge(message)


@pytest.mark.slow
def test_type_checkers_know_the_model(tmp_path: Path) -> None:
    """`send` takes it, `value` gives it, in every face."""
    (tmp_path / "typed.py").write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"),
         "--cache-dir", str(tmp_path / "cache"), str(tmp_path / "typed.py")],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    wrong = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(wrong) == 2, done.stdout + done.stderr
    assert all('has incompatible type "str"; expected "Order"' in line for line in wrong), wrong

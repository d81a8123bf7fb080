"""What a hostile request to publish costs the event loop."""

from __future__ import annotations

import base64
import gc
import json
import threading
import time

import pytest
import trio

from geminga_broker.admin.http.off_loop import INLINE_BYTES_MAX, off_the_loop
from geminga_broker.admin.namespaces._tests.test_kept import Admin, admin
from geminga_broker.admin.producing.avro_json import AvroWriter, NotOfSchema
from geminga_broker.admin.producing.encoding import encoder_of
from geminga_broker.admin.producing.requests import (
    MADE_BYTES_MAX,
    MESSAGES_MAX,
    ProducerMessage,
    ProducerMessages,
    TooLarge,
    TooMany,
    all_made,
    request_of,
)
from geminga_broker.schema.model import SchemaData
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.avro_schema import parse_avro
from geminga_protocol.schema_type import SchemaType

D = "/admin/v2/persistent/public/default"
POST = "/topics/persistent/public/default/t"


def avro(fields: object) -> bytes:
    return json.dumps({"type": "record", "name": "R", "fields": fields}).encode()


MANY_FIELDS = avro([{"name": f"a{n}", "type": "int", "default": 0} for n in range(5000)])
SYMBOLS = {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(20_000)]}
BRANCHES = [{"type": "fixed", "name": f"f{n}", "size": 0} for n in range(10_000)]
IN_A_ROW = {"type": "array", "items": "int"}

HOSTILE = {
    "defaults": (MANY_FIELDS, ["{}"] * MESSAGES_MAX),
    "symbols": (
        avro([{"name": "a", "type": {"type": "array", "items": SYMBOLS}}]),
        [json.dumps({"a": ["s19999"] * 50_000})],
    ),
    "branches": (
        avro([{"name": "a", "type": {"type": "array", "items": BRANCHES}}]),
        [json.dumps({"a": [{"f9999": ""}] * 40_000})],
    ),
    "array": (json.dumps(IN_A_ROW).encode(), [json.dumps([1] * 200_000)]),
    "nesting": (avro([]), ["[" * 500_000]),
}


@pytest.mark.alone
@pytest.mark.parametrize("what", HOSTILE)
def test_work_is_linear_in_a_request(what: str) -> None:
    data, payloads = HOSTILE[what]
    given = ProducerMessages(messages=[ProducerMessage(payload=each) for each in payloads])
    schema = SchemaData(SchemaType.AVRO, data)
    assert cpu_s(lambda: all_made(given, schema, b"", 0), enough_s=1.0, tries=2) < 3.0


def test_what_messages_repeat_is_bounded() -> None:
    each = ProducerMessage(payload="x")
    given = ProducerMessages(producer_name="n" * 1024, messages=[each] * MESSAGES_MAX)
    with pytest.raises(TooLarge):
        all_made(given, SchemaData(SchemaType.STRING, b""), b"", 0)
    assert MESSAGES_MAX * 1024 > MADE_BYTES_MAX


def test_errors_repeat_no_values() -> None:
    text = json.dumps("x" * 100_000)
    given = ProducerMessages(messages=[ProducerMessage(payload=text)])
    [only] = all_made(given, SchemaData(SchemaType.AVRO, b'"int"'), b"", 0)
    assert 0 < len(only.error) < 300


@pytest.mark.parametrize("first", [b"", b'"messages":5,'])
def test_too_many_messages_are_not_decoded(first: bytes) -> None:
    body = b"{" + first + b'"messages":[' + b"{}," * 340_000 + b"{}]}"

    def read() -> None:
        with pytest.raises(TooMany):
            request_of(body)

    assert cpu_s(read, enough_s=0.1, tries=3) < 0.2


@pytest.mark.parametrize("payload", [list(range(150_000)), {str(n): n for n in range(60_000)}])
def test_a_refused_value_is_not_printed(payload: object) -> None:
    kind = parse_avro('"int"').root
    writer = AvroWriter(kind)

    def refused() -> None:
        for _ in range(100):
            with pytest.raises(NotOfSchema, match="expected, not an"):
                writer.encode(payload)

    assert cpu_s(refused, enough_s=0.1, tries=3) < 0.2


def test_numbers_of_a_json_schema_cost_little() -> None:
    text = json.dumps([n / 7 for n in range(50_000)])
    encode = encoder_of(SchemaData(SchemaType.JSON, b""))
    assert cpu_s(lambda: encode(text), enough_s=0.02, tries=5) < 0.04


async def _longest_pause(at: Admin, body: object) -> float:
    """Seconds of this thread's processor between two turns of another task, at most."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began_s = time.thread_time()
            await trio.lowlevel.checkpoint()
            longest = max(longest, time.thread_time() - began_s)

    status, told = 0, ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        status, told = await at.ask("POST", POST, body)
        nursery.cancel_scope.cancel()
    assert status == 200, told
    return longest


@pytest.mark.alone
@pytest.mark.slow
async def test_many_messages_let_others_run() -> None:
    async with admin() as at:
        await at.done("PUT", D + "/t")
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            assert await _longest_pause(at, {"messages": [{"payload": "x"}] * MESSAGES_MAX}) < 0.15
        finally:
            if was_enabled:
                gc.enable()


@pytest.mark.alone
@pytest.mark.slow
async def test_other_tasks_have_their_turns() -> None:
    data = base64.b64encode(b'{"type":"array","items":"int"}').decode()
    schema = json.dumps({"name": "n", "type": "AVRO", "schema": data, "properties": {}})
    long = [{"payload": "[" + "1," * 400_000 + "1]"}, {"payload": "[1"}]
    async with admin() as at:
        await at.done("PUT", D + "/t")
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            # The test's own JSON is in it too.
            assert await _longest_pause(at, {"valueSchema": schema, "messages": long}) < 0.1
        finally:
            if was_enabled:
                gc.enable()


def test_each_event_loop_has_turns_of_its_own() -> None:
    together = threading.Barrier(2, timeout=10)

    def work() -> None:
        # Both at once, or the barrier breaks: a limit of one loop doesn't hold the other.
        together.wait()

    def run() -> None:
        trio.run(off_the_loop, INLINE_BYTES_MAX + 1, work)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not together.broken

"""Columns of the Java client's messages, recorded for the SDK's own tests."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from geminga.schema import SchemaInfo, SchemaType
from geminga.schema._tests import samples
from pyspark_pulsar._decode import Decoder, columns_of
from pyspark_pulsar._decode._tests.samples import plain
from pyspark_pulsar._options import ParseMode

GOLDEN = [
    json.loads(line)
    for line in Path(samples.__file__).with_name("golden_java.jsonl").read_text().splitlines()
]


def told(value: Any) -> Any:
    """A Python value as Arrow's `to_pylist` has it."""
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: told(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return [(key, told(each)) for key, each in value.items()]
    return [told(each) for each in value] if isinstance(value, list) else plain(value)


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["kind"] for each in GOLDEN])
def test_columns_of_the_java_clients_messages(golden: dict[str, Any]) -> None:
    kind, value = samples.samples()[golden["kind"]]
    # The bytes of the key are no part of the recording.
    key = kind._outgoing(value).key
    info = SchemaInfo(
        golden["name"],
        SchemaType(golden["type"]),
        bytes.fromhex(golden["schema"]),
        golden["properties"],
    )
    columns = columns_of(info)
    decoder = Decoder([each.arrow for each in columns], lambda version: info, ParseMode.FAILFAST)
    assert decoder.needs_keys == (info.type is SchemaType.KEY_VALUE)
    payload = bytes.fromhex(golden["payload"])
    found = decoder.decode([payload] * 3, [False] * 3, [key] * 3, None)
    row = {each.name: array[2].as_py() for each, array in zip(columns, found.columns, strict=True)}
    if info.type is SchemaType.PROTOBUF:
        assert row == {"value": payload}
    elif isinstance(value, Message):
        assert row.items() >= {each.name: known for each, known in value.ListFields()}.items()
    elif isinstance(value, tuple):
        assert row == dict(zip(("key", "value"), map(told, value), strict=True))
    else:
        wanted = told(value)
        assert row == (wanted if isinstance(wanted, dict) else {"value": wanted})

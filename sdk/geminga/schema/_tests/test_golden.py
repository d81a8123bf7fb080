"""Schemas and payloads of the Java client 4.0.7, recorded by `Schemas.java`, compared with ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminga.schema import KeyValue
from geminga.schema._tests.samples import samples

GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parent / "golden_java.jsonl").read_text().splitlines()
]


def _without_java(schema: Any) -> Any:
    """A definition without the Java class that Java reads a list into."""
    if isinstance(schema, dict):
        return {k: _without_java(v) for k, v in schema.items() if k != "java-class"}
    return [_without_java(each) for each in schema] if isinstance(schema, list) else schema


def _pruned(ours: Any, theirs: Any) -> Any:
    """Ours with the fields only that theirs has: `Api` got more of them since."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [_pruned(*both) for both in zip(ours, theirs, strict=True)]
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ours
    ours = {k: _pruned(v, theirs.get(k)) for k, v in ours.items() if k != "fields"} | {
        k: v for k, v in ours.items() if k == "fields"
    }
    if "fields" in ours and "fields" in theirs:
        known = {each["name"]: each for each in theirs["fields"]}
        ours["fields"] = [
            _pruned(each, known[each["name"]]) for each in ours["fields"] if each["name"] in known
        ]
    return ours


def _definition(data: bytes) -> Any:
    text = data[data.index(b"{") :] if b"{" in data else b"null"
    return _without_java(json.loads(text))


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["kind"] for each in GOLDEN])
def test_described_as_java(golden: dict[str, Any]) -> None:
    info = samples()[golden["kind"]][0].info
    assert (info.name, info.type.value) == (golden["name"], golden["type"])
    parsing = golden["properties"].pop("__PARSING_INFO__", "[")[:-1]
    properties = dict(info.properties)
    assert properties.pop("__PARSING_INFO__", "[").startswith(parsing)
    assert properties == golden["properties"]
    theirs = _definition(bytes.fromhex(golden["schema"]))
    ours = _pruned(_definition(info.schema), theirs)
    if isinstance(theirs, dict) and "fileDescriptorSet" in theirs:
        assert ours["rootMessageTypeName"] == theirs["rootMessageTypeName"]
        assert ours["rootFileDescriptorName"] == theirs["rootFileDescriptorName"]
        if golden["kind"] == "protobuf_native_api":
            return
    # As texts: the order of the parts is the same too.
    assert json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["kind"] for each in GOLDEN])
def test_encoded_as_java(golden: dict[str, Any]) -> None:
    schema, value = samples()[golden["kind"]]
    payload = bytes.fromhex(golden["payload"])
    outgoing = schema._outgoing(value)
    if golden["kind"] == "json":
        # Java omits nulls, and has the fields in the class's order.
        ours = {k: v for k, v in json.loads(outgoing.data).items() if v is not None}
        assert ours == json.loads(payload)
    else:
        assert outgoing.data == payload
    read = schema._reader(None)(payload, outgoing.key)
    assert read == value
    if not isinstance(schema, KeyValue):
        assert schema.decode(payload) == value

"""Schemas with the official Java and Python clients: evolution, refusals, versions, deletion."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import (
    AvroSchema,
    BytesSchema,
    Double,
    Integer,
    JsonSchema,
    Record,
    StringSchema,
)

from compat_tests.apache import jars
from compat_tests.clients.conftest import WAIT_MS, Peer
from compat_tests.missing import JAVA_CLIENT, skipped_without
from compat_tests.processes import ServerProcess, start_geminga

REFUSED = "IncompatibleSchemaException"
TOLD_TO_JAVA = {
    "avro_evolves": "okokok 1n1null/1/0 2n22.5/2/1 3n3null/3/0 2",
    "json_evolves": "okokok 1n1null/1/0 2n22.5/2/1 3n3null/3/0 2",
    "refused": f"ok {REFUSED} {REFUSED} {REFUSED} {REFUSED} ok",
    "auto_update_off": f"ok {REFUSED} ok ok",
    "auto_produce": "ok2 refused",
    "key_value": f"ok ok {REFUSED} kn1 KEY_VALUE ok ok {REFUSED} kn1 KEY_VALUE ",
    "native": f"ok {REFUSED} PROTOBUF_NATIVEx",
    "deleted": "ok 2 2 gone NONE",
}


@pytest.fixture(scope="module")
def told(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """One run of the Java program."""
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("SchemaRules", [server.service_url, server.web_url])
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"the program said nothing:\n{done.stderr[-2000:]}"
    return {line["name"]: line for line in lines}


@pytest.mark.java
@pytest.mark.parametrize("name", TOLD_TO_JAVA)
def test_java_client(told: dict[str, dict[str, Any]], name: str) -> None:
    assert told[name].get("told") == TOLD_TO_JAVA[name], told[name]


class One(Record):
    """The first version of a record."""

    _avro_namespace = "there"
    id = Integer()


class Grown(Record):
    """One that may follow; called the same."""

    _avro_namespace = "there"
    id = Integer()
    price = Double(required_default=True)


class Clash(Record):
    """One that may not."""

    _avro_namespace = "there"
    id = Double()


for _kind in (Grown, Clash):
    _kind.__name__ = "One"

KINDS = pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])


@KINDS
def test_python_records_evolve(peer: Peer, kind: Any) -> None:
    topic = peer.topic("evolve")
    consumer = peer.consumer(topic, schema=kind(One))
    peer.producer(topic, schema=kind(One)).send(One(id=1))
    peer.producer(topic, schema=kind(Grown)).send(Grown(id=2, price=2.5))
    assert [consumer.receive(WAIT_MS).value().id for _ in range(2)] == [1, 2]
    found = peer.admin("GET", f"{_path(topic)}/schemas")["getSchemaResponses"]
    assert [each["version"] for each in found] == [0, 1]
    assert {each["type"] for each in found} == {kind.__name__.removesuffix("Schema").upper()}


@KINDS
def test_python_records_are_refused(peer: Peer, kind: Any) -> None:
    topic = peer.topic("refuse")
    peer.producer(topic, schema=kind(One))
    with pytest.raises(pulsar.IncompatibleSchema):
        peer.producer(topic, schema=kind(Clash))
    # A double reads what was written as an int, and a consumer has to do no more.
    peer.consumer(topic, schema=kind(Clash), subscription="clash")
    with pytest.raises(pulsar.IncompatibleSchema):
        peer.consumer(topic, schema=StringSchema())
    with pytest.raises(pulsar.IncompatibleSchema):
        peer.producer(topic, schema=StringSchema())
    peer.producer(topic, schema=BytesSchema()).send(b"without schema")
    assert len(peer.admin("GET", f"{_path(topic)}/schemas")["getSchemaResponses"]) == 1


def test_texts_and_a_topic_that_is_used_without_schema(peer: Peer) -> None:
    topic = peer.topic("text")
    peer.producer(topic, schema=StringSchema()).send("ä")
    consumer = peer.consumer(topic, schema=StringSchema())
    assert consumer.receive(WAIT_MS).value() == "ä"
    plain = peer.topic("plain")
    peer.producer(plain).send(b"x")
    with pytest.raises(pulsar.IncompatibleSchema):
        peer.consumer(plain, schema=StringSchema())


def test_the_schema_goes_with_the_topic(peer: Peer) -> None:
    topic = peer.topic("gone")
    producer = peer.producer(topic, schema=JsonSchema(One))
    producer.close()
    peer.admin("DELETE", topic.replace("://", "/"))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        peer.admin("GET", f"{_path(topic)}/schema")
    peer.producer(topic, schema=StringSchema())


def test_schemas_survive_a_kill(data_dir: Path) -> None:
    payload = {"type": "JSON", "schema": '"int"', "properties": {"a": "b"}}
    path, seen = "schemas/public/default/killed", []
    for _ in range(2):
        running = start_geminga(data_dir)
        try:
            admin = Peer(running)
            admin.admin("POST", f"{path}/schema", payload)
            seen.append(admin.admin("GET", f"{path}/schema"))
            admin.client.close()
        finally:
            running.kill()
    assert seen[0] == seen[1]
    assert (seen[0]["version"], seen[0]["data"]) == (0, payload["schema"])


def _path(topic: str) -> str:
    return topic.replace("persistent://", "schemas/")

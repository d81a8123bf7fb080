"""`geminga client` and `perf read` on a real broker: standard input, places, schemas, JSON."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import dataclass

import geminga
import geminga.blocking
from compat_tests.processes import ServerProcess, geminga_command


@dataclass
class Tea:
    name: str
    minutes: int


def run(
    server: ServerProcess, *arguments: str, given: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [*geminga_command(), "client", "--url", server.service_url, *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=120)


def fresh() -> str:
    return f"persistent://public/default/cli-{uuid.uuid4().hex[:8]}"


def consumed(server: ServerProcess, topic: str, count: int, *more: str) -> list[str]:
    done = run(server, "consume", topic, "-s", "s", "-p", "Earliest", "-n", str(count), *more)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


def test_lines_of_standard_input_are_messages(server: ServerProcess) -> None:
    topic = fresh()
    done = run(server, "produce", topic, "-k", "k", given='one\ntwö\r\n\n{"a": 1}'.encode())
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"4 messages successfully produced\n"
    told = [json.loads(line) for line in consumed(server, topic, 4, "--json")]
    assert [each["value"] for each in told] == ["one", "twö", "", '{"a": 1}']
    assert {each["key"] for each in told} == {"k"}
    assert run(server, "produce", topic, "-n", "2", given=b"x\n").returncode == 2


def values(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["value"] for line in done.stdout.decode().splitlines()]


def test_messages_are_read_from_a_place_on(server: ServerProcess) -> None:
    topic = fresh()
    with geminga.blocking.connect(server.service_url) as client:
        client.subscribe(topic, "s").close()
        with client.create_producer(topic, batching_enabled=False) as producer:
            ids = [producer.send(text.encode()) for text in "abcd"]
    everything = ("read", topic, "-m", "earliest", "--to-end", "--json")
    assert values(run(server, *everything)) == [*"abcd"]
    assert values(run(server, *everything)) == [*"abcd"], "reading left something behind"
    assert values(run(server, *everything, "-n", "3")) == [*"abc"]
    assert values(run(server, "read", topic, "-m", "earliest", "--json")) == ["a"]
    second = f"{ids[1].ledger_id}:{ids[1].entry_id}"
    for place, found in ((second, "cd"), (repr(ids[1]), "cd")):
        assert values(run(server, "read", topic, "-m", place, "--to-end", "--json")) == [*found]
    done = run(server, "read", topic, "-m", second, "-i", "-n", "2")
    assert done.stdout.decode().count("got message") == 2
    assert "content:b\n" in done.stdout.decode()
    assert done.stdout.endswith(b"2 messages successfully read\n")
    assert values(run(server, "read", topic, "--to-end", "--json")) == [], "latest: none is new"
    assert values(run(server, "read", fresh(), "-m", "earliest", "--to-end", "--json")) == []


def test_reading_is_measured(server: ServerProcess) -> None:
    topic = fresh()
    assert run(server, "produce", topic, "-m", "x", "-n", "50").returncode == 0
    command = [*geminga_command(), "perf", "read", "-u", server.service_url, topic, "-n", "50"]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"50 records read" in done.stdout
    assert b"Latency: mean" in done.stdout


def test_no_lines_are_no_messages(server: ServerProcess) -> None:
    done = run(server, "produce", fresh(), given=b"")
    assert done.stdout == b"0 messages successfully produced\n"


def test_values_are_decoded_by_the_topics_schema(server: ServerProcess) -> None:
    topic = fresh()
    with geminga.blocking.connect(server.service_url) as client:
        client.subscribe(topic, "s").close()
        client.subscribe(topic, "raw").close()
        producer = client.create_producer(topic, schema=geminga.schema.Avro(Tea))
        producer.send(Tea("assam", 4), properties={"p": "q"})
    (line,) = consumed(server, topic, 1, "--json")
    told = json.loads(line)
    assert told["value"] == {"name": "assam", "minutes": 4}
    assert told["properties"] == {"p": "q"}
    assert told["topic"] == topic
    done = run(server, "consume", topic, "-s", "raw", "-p", "Earliest", "-st", "bytes", "--hex")
    assert b"content:0A 61 73 73 61 6D 08" in done.stdout


def test_bytes_that_are_no_text(server: ServerProcess) -> None:
    topic = fresh()
    with geminga.blocking.connect(server.service_url) as client:
        client.subscribe(topic, "s").close()
        client.create_producer(topic).send(b"\xff\x00")
    (line,) = consumed(server, topic, 1, "--json")
    assert json.loads(line)["valueBase64"] == "/wA="


def test_other_protocols_are_named(server: ServerProcess) -> None:
    """The web port answers in HTTP what is no HTTP."""
    web = server.web_url.replace("http://", "pulsar://")
    binary = server.service_url.replace("pulsar://", "http://")
    for url, told in ((web, b"speaks HTTP"), (binary, b"speaks Pulsar's binary protocol")):
        command = [*geminga_command(), "client", "--url", url, "produce", "t", "-m", "x"]
        done = subprocess.run(command, capture_output=True, timeout=120)
        assert done.returncode == 2
        assert told in done.stderr, done.stderr
        assert b"trying again" not in done.stderr

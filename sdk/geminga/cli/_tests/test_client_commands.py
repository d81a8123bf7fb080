"""`geminga client` at a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from geminga.cli.client import client
from geminga.testing import broker

RECORD = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker() as found:
        yield found


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(client, ["--url", url, *arguments])


def consumed(url: str, *arguments: str) -> str:
    done = run(url, "consume", "-s", "s", "-p", "Earliest", *arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_topics_by_a_pattern(url: str) -> None:
    for name in ("pattern-a", "pattern-b", "other"):
        assert run(url, "produce", name, "-m", f"of {name}").exit_code == 0
    shown = consumed(url, "--regex", "public/default/pattern-.*", "-n", "2")
    assert "of pattern-a" in shown
    assert "of pattern-b" in shown
    wrong = run(url, "consume", "-s", "s", "--regex", "public/default/(")
    assert wrong.exit_code == 2
    assert "is no regular expression" in wrong.output


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_values_by_a_schema(url: str, kind: str) -> None:
    topic = f"valued-{kind}"
    schema = ("-vs", f"{kind}:{RECORD}")
    assert run(url, "produce", topic, *schema, "-s", "", "-m", '{"n": 7}').exit_code == 0
    assert '"value":{"n":7}' in consumed(url, topic, "--json")
    # A JSON schema of a definition alone takes each object, as in Java.
    for text in ["{", *(['{"n": "x"}'] if kind == "avro" else [])]:
        assert run(url, "produce", topic, *schema, "-s", "", "-m", text).exit_code in (1, 2)


def test_texts_by_a_schema(url: str) -> None:
    assert run(url, "produce", "texts", "-vs", "string", "-m", "hello").exit_code == 0
    assert "hello" in consumed(url, "texts")


@pytest.mark.parametrize("text", ["int", "avro", "json:", "avro:{"])
def test_schemas_that_are_none(url: str, text: str) -> None:
    done = run(url, "produce", "t", "-vs", text, "-m", "x")
    assert done.exit_code == 2, done.output


def test_a_large_message_in_chunks(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("large") / "message"
    file.write_bytes(b"x" * 6_000_000)
    assert run(url, "produce", "chunked", "-f", str(file)).exit_code == 2
    assert run(url, "produce", "chunked", "-f", str(file), "--chunking").exit_code == 0
    assert "1 messages successfully consumed" in consumed(url, "chunked", "--hide-content")

"""Lines of the log as JSON objects (OP-08)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import click
import msgspec
import pytest
from click.testing import CliRunner

from geminga_runtime.command_line import log_options
from geminga_runtime.logs import LINE_CHARACTERS_MAX, TRACEBACK_CHARACTERS_MAX
from geminga_runtime.observing.json_lines import JsonFormatter
from geminga_runtime.observing.log_setup import LogSettings, set_up_logging, settings_in_use


def line_of(text: str, *args: object, process: str = "") -> dict[str, str]:
    record = logging.LogRecord("a.b", logging.INFO, "p", 1, text, args, None)
    line = JsonFormatter(process).format(record)
    assert "\n" not in line
    return msgspec.json.decode(line, type=dict[str, str])


def things_of(text: str, *args: object) -> dict[str, str]:
    line = line_of(text, *args)
    for own in ("time", "level", "logger", "message"):
        del line[own]
    return line


def test_a_line() -> None:
    line = line_of("topic=%s was loaded in %.3f s", "persistent://a/b/c", 1.5)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "a.b",
        "message": "topic=persistent://a/b/c was loaded in 1.500 s",
        "topic": "persistent://a/b/c",
    }
    assert line_of("x", process="broker-1")["process"] == "broker-1"


def test_what_is_named_is_found_in_the_text_and_not_in_what_a_peer_gave() -> None:
    forged = "x role=admin topic=%s"
    assert things_of("address=%s role=%s may not %s", "h:1", forged, "read") == {
        "address": "h:1",
        "role": forged,
    }
    assert things_of("100%% of %d: cursor=%r took %-5.1f%%, log=%s", 1, "c", 2.0, "l") == {
        "cursor": "c",
        "log": "l",
    }
    assert things_of("topic=of nothing") == {}
    assert things_of("a peer's line\n\u2028 %s", "\x00\r\n\udc80") == {}


def test_a_thing_takes_no_members_place() -> None:
    assert line_of("level=%s message=%s", "x", "y")["level"] == "INFO"


def test_values_by_name_are_in_the_message() -> None:
    record = logging.LogRecord("a", logging.INFO, "p", 1, "topic=%(t)s", ({"t": "x"},), None)
    line = msgspec.json.decode(JsonFormatter().format(record), type=dict[str, str])
    assert line["message"] == "topic=x"


def test_bounds() -> None:
    long = "x" * (5 << 20)
    line = line_of("topic=%s", long)
    assert len(line["message"]) < LINE_CHARACTERS_MAX + 100
    assert len(line["topic"]) < LINE_CHARACTERS_MAX + 100
    try:
        raise ValueError("y" * (5 << 20))
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "p", 1, "z", (), sys.exc_info())
    found = msgspec.json.decode(JsonFormatter().format(record), type=dict[str, str])
    assert len(found["exception"]) < TRACEBACK_CHARACTERS_MAX + 100


def test_a_traceback_that_is_not_utf_8_and_a_stack() -> None:
    try:
        raise FileNotFoundError("/data/\udcff")
    except FileNotFoundError:
        record = logging.LogRecord("a", logging.ERROR, "p", 1, "z", (), sys.exc_info())
    record.stack_info = "Stack (most recent call last):\n  \udcfe"
    found = msgspec.json.decode(JsonFormatter().format(record), type=dict[str, str])
    assert found["exception"].endswith("FileNotFoundError: /data/\\udcff")
    assert found["stack"].endswith("last):\n  \\udcfe")


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Handlers and levels come back after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    packages = {
        name: logging.getLogger(name).level
        for name in (f"geminga{part}" for part in ("", "_broker", "_bookie", "_proxy", "_runtime"))
    }
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in packages.items():
        logging.getLogger(name).setLevel(before)


@pytest.mark.parametrize("settings", [LogSettings("DEBUG", as_json=True), LogSettings("ERROR")])
@pytest.mark.usefixtures("logging_as_before")
def test_settings_are_known_for_other_processes(settings: LogSettings) -> None:
    set_up_logging(settings, "broker-1")
    assert settings_in_use() == settings


@pytest.mark.usefixtures("logging_as_before")
def test_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @log_options
    def command() -> None:
        print(settings_in_use())

    runner = CliRunner()
    assert "level='INFO', as_json=False" in runner.invoke(command, []).output
    given = runner.invoke(command, ["--log-level", "debug", "--log-format", "JSON"])
    assert "level='DEBUG', as_json=True" in given.output
    refused = runner.invoke(command, ["--log-format", "xml"])
    assert refused.exit_code == 2
    assert "'text', 'json'" in refused.output

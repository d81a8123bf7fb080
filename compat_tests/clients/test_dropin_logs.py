"""Where the log of `geminga.pulsar` goes (spec SDK-45)."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress

import pytest

import geminga.pulsar as pulsar

OURS = logging.getLogger("geminga")
NOWHERE = "pulsar://127.0.0.1:1"


@contextmanager
def clients(*loggers: object) -> Iterator[list[pulsar.Client]]:
    with ExitStack() as stack:
        made = [pulsar.Client(NOWHERE, logger=each) for each in loggers]
        for each in made:
            stack.callback(_end, each)
        yield made


def _end(client: pulsar.Client) -> None:
    with suppress(pulsar.AlreadyClosed):
        client.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else takes the client's log, as in a program that configures no logging."""
    monkeypatch.setattr(OURS, "propagate", False)


def separate(name: str, monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """A logger of the program's whose records go no further."""
    made = logging.getLogger(name)
    monkeypatch.setattr(made, "propagate", False)
    return made


@pytest.mark.usefixtures("alone")
def test_a_logger_without_handlers_writes_as_pythons_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = separate("dropin-without-handlers", monkeypatch)
    with clients(told, told):
        OURS.warning("somebody is told")
        OURS.info("nobody is told")
    assert capsys.readouterr().err.splitlines() == ["somebody is told"]


@pytest.mark.usefixtures("alone")
def test_loggers_that_lead_to_one_handler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    above = separate("dropin-above", monkeypatch)
    own = logging.StreamHandler(sys.stderr)
    above.addHandler(own)
    with clients(above.getChild("a"), above.getChild("b")) as (first, _):
        OURS.warning("once only")
        first.close()
        OURS.warning("once more")
    above.removeHandler(own)
    assert capsys.readouterr().err.splitlines() == ["once only", "once more"]


def test_consoles_of_two_outputs_have_a_record_each(capsys: pytest.CaptureFixture[str]) -> None:
    other = io.StringIO()
    with ExitStack() as stack:
        with redirect_stdout(other):
            stack.enter_context(clients(pulsar.ConsoleLogger()))
        stack.enter_context(clients(pulsar.ConsoleLogger()))
        OURS.warning("to both")
    assert other.getvalue().count("to both") == 1
    assert capsys.readouterr().out.count("to both") == 1


def test_a_handler_that_the_program_took_away_holds_up_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = list(OURS.handlers)
    with clients(pulsar.ConsoleLogger(), pulsar.ConsoleLogger()):
        first = next(each for each in OURS.handlers if each not in before)
        OURS.removeHandler(first)
        OURS.warning("still told")
    assert capsys.readouterr().out.count("still told") == 1

"""What a standalone tells of slow operations: of each kind that can be slow (OP-08)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from geminga import Client
from geminga_broker.config import load_config
from geminga_broker.standalone import run_standalone
from geminga_broker.standalone_parts import StandaloneOptions
from geminga_runtime.observing import slow

GIVEN = {"bindAddress": "127.0.0.1", "brokerServicePort": "0", "webServicePort": "0"}
TOPIC = "persistent://public/default/slow"


async def _one_message(folder: Path) -> None:
    options = StandaloneOptions(load_config(None, {}, GIVEN), folder / "data")
    async with trio.open_nursery() as nursery:
        running = await nursery.start(run_standalone, options)
        async with Client(running.urls[0]) as client, client.create_producer(TOPIC) as producer:
            await producer.send(b"x")
        nursery.cancel_scope.cancel()


async def test_each_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "SLOW_S", -1.0)
    with caplog.at_level(logging.WARNING):
        await _one_message(tmp_path)
    told = "\n".join(line for line in caplog.messages if line.startswith("slow: "))
    for kind in (
        f"topic={TOPIC} was loaded: ",
        "log=public/default/persistent/slow: 1 entries were stored: ",
        "a sync of the journal's file 0000000000000001: ",
        "a commit of ",
    ):
        assert f"slow: {kind}" in told


async def test_none_is_slow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "SLOW_S", 60.0)  # the machine may be busy
    with caplog.at_level(logging.WARNING):
        await _one_message(tmp_path)
    assert not [line for line in caplog.messages if line.startswith("slow: ")]

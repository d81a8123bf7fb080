"""What parts of a broker count (OP-05)."""

from __future__ import annotations

import pytest
import trio

from geminga_broker.errors import BrokerError
from geminga_broker.metrics import counts
from geminga_broker.metrics.counts import LoadCounts, SchemaCounts, SchemaMeter
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


async def test_a_cancelled_call_has_neither_failed_nor_passed() -> None:
    schemas = SchemaCounts()
    with trio.move_on_after(0), schemas.timed("get"):
        await trio.sleep_forever()
    assert (schemas.failures["get"], schemas.times["get"].count) == (0, 0)
    with pytest.raises(ValueError, match="planted"), schemas.timed("get"):
        raise ValueError("planted")
    with schemas.timed("get"):
        pass
    assert (schemas.failures["get"], schemas.times["get"].count) == (1, 1)


def test_the_namespace_that_was_not_used_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counts, "SCHEMA_NAMESPACES_MAX", 2)
    meter = SchemaMeter()
    first = meter.of("public/a/t")
    meter.of("public/b/t")
    assert meter.of("public/a/u") is first
    meter.of("public/c/t")
    assert [*meter.namespaces] == ["public/a", "public/c"]


def test_a_missing_topic_is_no_failure() -> None:
    loads = LoadCounts()
    loads.failed(BrokerError(ServerError.TopicNotFound, "planted"))
    assert loads.failures == 0
    loads.failed(BrokerError(ServerError.ServiceNotReady, "planted"))
    loads.failed(ValueError("planted"))
    assert loads.failures == 2

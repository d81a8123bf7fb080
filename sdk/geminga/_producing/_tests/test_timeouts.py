"""What an error says about a message that got no receipt in time."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

import geminga
from geminga._producing._tests.test_producer import producing
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

FULL = (ServerError.PersistenceError, "no bookie takes writes")


async def test_the_refusal_is_the_cause(autojump_clock: MockClock) -> None:
    async with producing(send_timeout_s=5) as (broker, producer):
        broker.fail["send"] = [FULL]
        broker.fail["producer"] = [FULL] * 1000
        with pytest.raises(geminga.OperationTimeoutError) as caught:
            await producer.send(b"x")
        assert "PersistenceError: no bookie takes writes" in str(caught.value)
        assert isinstance(caught.value.__cause__, geminga.PersistenceError)


async def test_a_refusal_holds_as_long_as_nothing_else_is_known(autojump_clock: MockClock) -> None:
    """The attempts are rarer than the timeouts, after a while."""
    async with producing(send_timeout_s=0.5) as (broker, producer):
        broker.fail["send"] = [FULL]
        broker.fail["producer"] = [FULL] * 1000
        for _ in range(60):
            with pytest.raises(geminga.OperationTimeoutError) as caught:
                await producer.send(b"x")
            assert isinstance(caught.value.__cause__, geminga.PersistenceError)


async def test_without_a_refusal_there_is_no_cause(autojump_clock: MockClock) -> None:
    async with producing(send_timeout_s=5) as (broker, producer):
        broker.hold_receipts = True
        with pytest.raises(geminga.OperationTimeoutError) as caught:
            await producer.send(b"x")
        assert caught.value.__cause__ is None

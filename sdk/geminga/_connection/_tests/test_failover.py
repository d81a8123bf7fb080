from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import geminga
from geminga import AuthenticationToken, AutoClusterFailover, FailoverCluster
from geminga._connection.pool import ConnectionPool, Endpoint
from geminga._connection.service_url import parse
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga.client import open_client
from geminga.failover import FailoverState
from geminga.options import ClientOptions
from geminga_protocol.commands import lookup
from geminga_protocol.frames import Frame
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.stream import FramedStream


async def current_after(steps: list[tuple[float, set[int]]], **delays: float) -> list[int]:
    """The cluster in use after each check, by the time and the reachable clusters."""
    state = FailoverState(AutoClusterFailover(["pulsar://b", "pulsar://c"], **delays))
    seen = []
    for now_s, up in steps:

        async def probe(n: int, up: set[int] = up) -> bool:
            await trio.lowlevel.checkpoint()
            return n in up

        before = state.current
        assert await state.check(now_s, probe) is (state.current != before)
        seen.append(state.current)
    return seen


async def test_states() -> None:
    delays = {"failover_delay_s": 10.0, "switch_back_delay_s": 20.0}
    all_up = {0, 1, 2}
    # Unreachable for a moment: no change.
    steps = [(0.0, all_up), (5.0, {1, 2}), (10.0, all_up), (14.0, {1, 2}), (20.0, {1, 2})]
    assert await current_after(steps, **delays) == [0] * 5
    # The first reachable one; no change while none is.
    steps = [(0.0, {2}), (9.9, {2}), (10.0, set()), (11.0, {2}), (12.0, {1, 2})]
    assert await current_after(steps, **delays) == [0, 0, 0, 2, 2]
    # Back after a time without interruption.
    steps = [(0.0, {1}), (10.0, {1}), (11.0, {0, 1}), (20.0, {1}), (25.0, {0, 1}), (44.9, all_up)]
    assert await current_after([*steps, (45.0, all_up)], **delays) == [0, 1, 1, 1, 1, 1, 0]
    # The second one also fails: the primary is checked first.
    steps = [(0.0, {1}), (10.0, {1}), (11.0, {2}), (21.0, {0, 2})]
    assert await current_after(steps, **delays) == [0, 1, 1, 0]


def test_wrong_options() -> None:
    for wrong in ([], "pulsar://b", ["ftp://b"]):
        with pytest.raises(geminga.InvalidArgumentError):
            AutoClusterFailover(wrong)
    with pytest.raises(geminga.InvalidArgumentError, match="check_interval_s"):
        AutoClusterFailover(["pulsar://b"], check_interval_s=0)
    with pytest.raises(geminga.InvalidArgumentError, match="failover"):
        geminga.connect("pulsar://a", failover="pulsar://b")


async def test_there_and_back(autojump_clock: MockClock) -> None:
    down: set[str] = set()
    async with fake_broker() as here, fake_broker() as there:
        brokers = {"a": here, "b": there}
        at = {"a": 0, "b": 0}

        async def connector(host: str, port: int, deadline: float) -> FramedStream:
            # Lookups return one name for both: the last one that got a request is in use.
            broker = brokers[host] if host in brokers else brokers[max(at, key=at.__getitem__)]
            if host in down:
                await trio.lowlevel.checkpoint()
                raise ConnectFailed(f"{host} is down")
            if host in at:
                at[host] = max(at.values()) + 1
            return await broker.connector(host, port, deadline)

        policy = AutoClusterFailover(
            ["pulsar://b"], failover_delay_s=5, switch_back_delay_s=5, check_interval_s=1
        )
        options = ClientOptions(failover=policy, max_backoff_s=1)
        async with open_client(parse("pulsar://a"), options, connector) as client:
            producer = await client.create_producer("t")
            await producer.send(b"first")
            down.add("a")
            here.cut()
            receipt = await producer.submit(b"second")
            await receipt.wait()
            assert counts(here, there) == (1, 1)
            assert "pulsar://b" in repr(client)
            down.clear()
            await trio.sleep(10)
            assert "pulsar://a" in repr(client)
            await producer.send(b"third")
            assert counts(here, there) == (2, 1)
            assert producer.pending_messages == 0


async def test_calls_that_wait_go_to_the_other_cluster(autojump_clock: MockClock) -> None:
    """What begins before the failover is asked of the cluster in use at each try."""
    async with fake_broker() as there:

        async def connector(host: str, port: int, deadline: float) -> FramedStream:
            if host == "a":
                await trio.lowlevel.checkpoint()
                raise ConnectFailed("a is down")
            return await there.connector(host, port, deadline)

        policy = AutoClusterFailover(["pulsar://b"], failover_delay_s=2, check_interval_s=1)
        options = ClientOptions(failover=policy, max_backoff_s=1)
        async with open_client(parse("pulsar://a"), options, connector) as client:
            producer = await client.create_producer("t")
            await producer.send(b"there")
        assert counts(there) == (1,)


def counts(*brokers: FakeBroker) -> tuple[int, ...]:
    return tuple(len(broker.topic("t").entries) for broker in brokers)


async def test_each_cluster_has_its_own_authentication(autojump_clock: MockClock) -> None:
    down: set[str] = set()
    async with fake_broker() as here, fake_broker() as there:
        here.accepts = lambda data: data == b"for-here"
        there.accepts = lambda data: data == b"for-there"

        class Session(FakeSession):
            def on_lookupTopic(self, body: Any, frame: Frame) -> None:
                url = f"pulsar://{'a' if self.broker is here else 'b'}:6650"
                self.stream.write(lookup.lookup_response(body.request_id, broker_url=url))

        here.session_type = there.session_type = Session

        async def connector(host: str, port: int, deadline: float) -> FramedStream:
            await trio.lowlevel.checkpoint()
            if host in down:
                raise ConnectFailed(f"{host} is down")
            return await {"a": here, "b": there}[host].connector(host, port, deadline)

        other = FailoverCluster("pulsar://b", AuthenticationToken("for-there"))
        policy = AutoClusterFailover(
            [other], failover_delay_s=5, switch_back_delay_s=5, check_interval_s=1
        )
        options = ClientOptions(
            failover=policy, max_backoff_s=1, authentication=AuthenticationToken("for-here")
        )
        async with open_client(parse("pulsar://a"), options, connector) as client:
            producer = await client.create_producer("t")
            consumer = await client.subscribe("t", "s")
            for number, gone in enumerate(("a", "", "a")):
                down.clear()
                down.add(gone)
                for broker in (here, there):
                    broker.cut()
                await trio.sleep(12)
                await producer.send(b"%d" % number)
                message = await consumer.receive()
                assert message.data == b"%d" % number
                await consumer.acknowledge(message)
                await trio.sleep(1)
            assert {data for _, data in here.auth} == {b"for-here"}
            assert {data for _, data in there.auth} == {b"for-there"}
            assert counts(here, there) == (1, 2)


async def test_what_was_learnt_of_the_other_cluster_is_not_used(autojump_clock: MockClock) -> None:
    hold: trio.Event | None = None
    reached = False
    async with fake_broker() as broker:

        async def connector(host: str, port: int, deadline: float) -> FramedStream:
            nonlocal reached
            if hold is not None:
                reached = True
                await hold.wait()
            return await broker.connector(host, port, deadline)

        policy = AutoClusterFailover(["pulsar://b"])
        options = ClientOptions(failover=policy)
        async with open_client(parse("pulsar://a"), options, connector) as client:
            core = client._core
            endpoint = await core.lookup.broker_of("persistent://public/default/t")
            core._switch(1)
            with pytest.raises(geminga.ConnectionFailedError, match="left this cluster"):
                await core.pool.get(endpoint)
            async with trio.open_nursery() as nursery:
                there = await core.lookup.broker_of("persistent://public/default/t")
                core.pool.drop_all("so that it is opened anew")
                opened = core.pool.opened
                hold = trio.Event()
                nursery.start_soon(_refused, core.pool, there)
                await wait_all_tasks_blocked()
                assert reached
                assert core.pool.opened == opened
                core._switch(0)
                hold.set()
            assert not core.pool.connections


async def _refused(pool: ConnectionPool, endpoint: Endpoint) -> None:
    with pytest.raises(geminga.ConnectionFailedError, match="left while connecting"):
        await pool.get(endpoint)


def test_wrong_clusters() -> None:
    with pytest.raises(geminga.InvalidArgumentError, match="service_url"):
        FailoverCluster("b")
    with pytest.raises(geminga.InvalidArgumentError, match="authentication"):
        FailoverCluster("pulsar://b", authentication="secret")
    assert "secret" not in repr(FailoverCluster("pulsar://b", AuthenticationToken("secret")))

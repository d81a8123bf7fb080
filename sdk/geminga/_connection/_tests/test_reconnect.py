"""Connections cut at every command, brokers that refuse and move: nothing acknowledged is lost."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

import geminga
from geminga import InitialPosition
from geminga._producing._tests.test_producer import stored
from geminga._tests.fake_broker import FakeSession, fake_broker
from geminga_protocol.commands import answers, connection, consuming, producing
from geminga_protocol.frames import SUBMESSAGE, Frame
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

COMMANDS = ["connect", "lookupTopic", "partitionMetadata", "producer", "send", "subscribe", "flow",
            "ack", "close_producer", "close_consumer"]  # fmt: skip


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
async def test_cut_at_each_command(
    command: str, before: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The connection breaks when the broker gets the command: before or after its execution."""
    left = 3
    handle = FakeSession.handle

    def cutting(self: FakeSession, frame: Frame) -> None:
        nonlocal left
        if self.stream.lost:
            return
        hit = SUBMESSAGE[frame.type] == command and left > 0
        left -= hit
        if not (hit and before):
            handle(self, frame)
        if hit:
            self.stream.abort("cut")

    monkeypatch.setattr(FakeSession, "handle", cutting)
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe(
            "t", "s", initial_position=InitialPosition.EARLIEST, ack_grouping_time_s=0.01
        )
        producer = await client.create_producer("t", producer_name="p", batching_max_messages=4)
        receipts = []
        seen: list[bytes] = []
        for n in range(40):
            receipts.append(await producer.submit(b"%d" % n))
            await trio.sleep(0.02)
        for receipt in receipts:
            await receipt.wait()
        while len(set(seen)) < 40:
            message = await consumer.receive(30)
            seen.append(message.data)
            await consumer.acknowledge(message)
        await producer.aclose()
        await consumer.aclose()
        assert stored(broker) == [b"%d" % n for n in range(40)]
        assert list(dict.fromkeys(seen)) == [b"%d" % n for n in range(40)]


@pytest.mark.parametrize("seed", range(10))
async def test_cut_at_random(seed: int, autojump_clock: MockClock) -> None:
    chance = random.Random(seed)
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.EARLIEST)
        producer = await client.create_producer("t", producer_name="p", batching_max_messages=5)
        seen: list[bytes] = []

        async def consume() -> None:
            while len(set(seen)) < 300:
                message = await consumer.receive()
                seen.append(message.data)
                await consumer.acknowledge(message)

        async def cut() -> None:
            while True:
                await trio.sleep(chance.random())
                broker.refuse_connections = chance.randrange(3)
                broker.cut()

        with trio.fail_after(2000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cut)
                async with trio.open_nursery() as work:
                    work.start_soon(consume)
                    receipts = []
                    for n in range(300):
                        receipts.append(await producer.submit(b"%d" % n))
                        await trio.sleep(chance.random() * 0.05)
                    for receipt in receipts:
                        await receipt.wait()
                nursery.cancel_scope.cancel()
        assert stored(broker) == [b"%d" % n for n in range(300)]
        assert list(dict.fromkeys(seen)) == [b"%d" % n for n in range(300)]


async def test_who_was_told_of_failures_is_told_of_their_end(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[tuple[str, str]]:
        found = [
            (each.levelname, each.getMessage()) for each in caplog.records if "after" in each.msg
        ]
        caplog.clear()
        return found

    with caplog.at_level("INFO", "geminga"):
        async with fake_broker() as broker, broker.client() as client:
            producer = await client.create_producer("t")
            assert told() == []
            broker.cut()
            await producer.send(b"x")
            [(level, text)] = told()
            assert level == "INFO"
            assert text.startswith("persistent://public/default/t: connected after 0.")
            broker.refuse_connections = 3
            broker.cut()
            await producer.send(b"y")
            [(level, text)] = told()
            assert level == "WARNING"
            assert text.startswith("persistent://public/default/t: connected after ")


async def test_the_broker_closes_and_tells_where_to_go(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s")
        lookups = broker.seen.count("lookupTopic")
        session = broker.sessions[0]
        for producer_id, (topic, name) in list(session.producers.items()):
            topic.producers.pop(name)
            del session.producers[producer_id]
            session.stream.write(
                producing.close_producer(producer_id, 0, assigned_broker_url="pulsar://fake:6650")
            )
        for held in list(session.consumers.values()):
            held.leave()
            session.stream.write(consuming.close_consumer(held.id, 0))
        began_s = trio.current_time()
        await producer.send(b"x")
        assert trio.current_time() - began_s < 0.01
        assert (await consumer.receive(5)).data == b"x"
        assert broker.seen.count("lookupTopic") == lookups + 1


@pytest.mark.parametrize("assigned", ["pulsar://fake:6650", None])
@pytest.mark.parametrize("kind", ["close_producer", "close_consumer"])
async def test_a_close_that_meets_the_brokers_own_attaches_nothing_anew(
    kind: str, assigned: str | None, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Its topic moves, and the answer to the client's CLOSE comes after the broker's. What was
    attached to the next broker meanwhile would stay there as long as the connection.
    """
    handle = FakeSession.handle

    def moving(self: FakeSession, frame: Frame) -> None:
        if SUBMESSAGE[frame.type] != kind:
            handle(self, frame)
            return
        for producer_id, (topic, name) in list(self.producers.items()):
            topic.producers.pop(name)
            del self.producers[producer_id]
            self.stream.write(
                producing.close_producer(producer_id, 0, assigned_broker_url=assigned)
            )
        for held in list(self.consumers.values()):
            held.leave()
            self.stream.write(consuming.close_consumer(held.id, 0, assigned_broker_url=assigned))
        self.consumers.clear()
        request_id = getattr(frame.command, kind).request_id
        deadline_s = trio.current_time() + 5

        async def answer() -> None:
            await trio.sleep_until(deadline_s)
            self.stream.write(answers.success(request_id))

        nursery.start_soon(answer)

    async with fake_broker() as broker, broker.client() as client, trio.open_nursery() as nursery:
        if kind == "close_producer":
            closing: geminga.Producer | geminga.Consumer = await client.create_producer("t")
        else:
            closing = await client.subscribe("t", "s")
        monkeypatch.setattr(FakeSession, "handle", moving)
        await closing.aclose()
        await trio.sleep(10)
        assert not [each for each in broker.sessions if each.producers or each.consumers]


async def test_a_waiting_producer_that_is_closed_asks_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """It waits for exclusive access without a timeout, so nothing else would wake it."""
    handle = FakeSession.handle
    asked = 0

    def waiting(self: FakeSession, frame: Frame) -> None:
        nonlocal asked
        body = frame.command.producer
        asked += SUBMESSAGE[frame.type] == "producer"
        if SUBMESSAGE[frame.type] != "producer" or asked > 1:
            handle(self, frame)
            return
        answer = producing.producer_success(body.request_id, "p", producer_ready=False)
        self.stream.write(answer, producing.close_producer(body.producer_id, 0))

    monkeypatch.setattr(FakeSession, "handle", waiting)
    async with fake_broker() as broker, broker.client() as client:
        with trio.fail_after(30):
            producer = await client.create_producer("t")
            await producer.send(b"x")
        assert asked == 2


async def test_first_attempt_goes_on_until_its_deadline(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(operation_timeout_s=20) as client:
        broker.fail["lookupTopic"] = [(ServerError.ServiceNotReady, "loading")] * 5
        broker.fail["producer"] = [(ServerError.ServiceNotReady, "loading")] * 2
        await client.create_producer("t")
        broker.fail["lookupTopic"] = [(ServerError.ServiceNotReady, "loading")] * 1000
        began_s = trio.current_time()
        with pytest.raises(geminga.ServiceNotReadyError):
            await client.create_producer("u")
        assert 19 <= trio.current_time() - began_s <= 20


async def test_first_attempts_share_the_operation_timeout(autojump_clock: MockClock) -> None:
    """A broker that becomes silent in between doesn't cost a second timeout."""
    async with fake_broker() as broker, broker.client(operation_timeout_s=20) as client:
        handle = FakeSession.handle
        began_s = 0.0
        silent = {"producer", "subscribe"}

        def falls_silent(self: FakeSession, frame: Frame) -> None:
            late = trio.current_time() - began_s > 5
            if not (late and SUBMESSAGE[frame.type] in silent):
                handle(self, frame)

        await client.create_producer("warm")
        for session in broker.sessions:
            session.handle = falls_silent.__get__(session)
        began_s = trio.current_time()
        broker.fail["producer"] = [(ServerError.ServiceNotReady, "loading")] * 6
        with pytest.raises(geminga.OperationTimeoutError):
            await client.create_producer("t")
        assert trio.current_time() - began_s <= 20.01


async def test_a_last_attempt_cut_short_tells_what_was_answered(autojump_clock: MockClock) -> None:
    """Between the last refusal and the deadline there is no time for another response."""
    async with fake_broker() as broker, broker.client(operation_timeout_s=20) as client:
        handle = FakeSession.handle
        await client.create_producer("warm")
        silent_from_s = trio.current_time() + 19.5

        def falls_silent(self: FakeSession, frame: Frame) -> None:
            if trio.current_time() < silent_from_s:
                handle(self, frame)

        for session in broker.sessions:
            session.handle = falls_silent.__get__(session)
        broker.fail["producer"] = [(ServerError.ServiceNotReady, "loading")] * 1000
        with pytest.raises(geminga.ServiceNotReadyError):
            await client.create_producer("t")


async def test_what_no_waiting_heals(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s")
        broker.fail["producer"] = [(ServerError.ProducerFenced, "another")]
        broker.fail["subscribe"] = [(ServerError.TopicNotFound, "deleted")]
        broker.cut()
        with pytest.raises(geminga.ProducerFencedError) as caught:
            await producer.send(b"x")
        assert caught.value.topic == "persistent://public/default/t"
        with pytest.raises(geminga.TopicNotFoundError):
            await consumer.receive()
        with pytest.raises(geminga.ProducerFencedError):
            await producer.send(b"y")


async def test_a_silent_broker_is_given_up(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(keep_alive_interval_s=10) as client:
        producer = await client.create_producer("t")
        first = broker.sessions[0]
        first.handle = lambda frame: None
        began_s = trio.current_time()
        await producer.send(b"x")
        assert 10 <= trio.current_time() - began_s <= 25
        assert stored(broker) == [b"x"]


async def test_a_client_that_stood_still_keeps_its_connection(mock_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(keep_alive_interval_s=10) as client:
        await client.create_producer("t")
        session = broker.sessions[0]
        session.handle = lambda frame: None
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        session.stream.write(connection.PONG)  # it comes while the client can't read
        mock_clock.jump(40)
        await wait_all_tasks_blocked()
        assert broker.sessions == [session]
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert session not in broker.sessions


async def test_damage_twice_in_one_read_costs_the_connection_only(
    autojump_clock: MockClock,
) -> None:
    """A command that can't be read, and after it lengths that don't fit."""
    damaged = bytes.fromhex("00000006 00000002 ffff") + b"\xff" * 8
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        [session] = broker.sessions
        session.stream.write(damaged)
        await trio.sleep(10)
        assert broker.seen.count("connect") == 2
        await producer.send(b"x")
    assert stored(broker) == [b"x"]

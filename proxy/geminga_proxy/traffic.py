"""What passes through tunnels, by connection and by topic: `/proxy-stats` (spec PX-06).

Connections cost nothing: the counts of their relays are read once a period. Topics are known only
to tunnels whose commands are logged, and are counted at proxyLogLevel 2.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import trio

from geminga_protocol.errors import ProtocolError
from geminga_protocol.frames import Frame
from geminga_protocol.payload import decode_head, split
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_protocol.topic_name import TopicName
from geminga_proxy.relay import Tunnel

PERIOD_S = 60.0
TOPICS_MAX = 10_000
IDS_MAX = 10_000
"""Producers or consumers of one tunnel whose topics are remembered."""
NAME_CHARS_MAX = 1024
"""Of a topic; no broker takes a longer one."""

_C = BaseCommand.Type


class ConnectionStats(msgspec.Struct, rename="camel"):
    """A tunnel: reads and bytes of its client in a second."""

    request_rate: float
    byte_rate: float
    client_address: str
    broker_address: str


class TopicStats(msgspec.Struct, rename="camel"):
    """Messages and bytes in a second: in is from producers."""

    msg_rate_in: float
    msg_byte_in: float
    msg_rate_out: float
    msg_byte_out: float


class Count(NamedTuple):
    """Things, and their bytes."""

    things: float
    bytes: float


class Meter:
    """How fast a count grew in the last whole period; before its end, since the beginning."""

    __slots__ = ("_at_s", "_before", "_rates")

    def __init__(self, now_s: float) -> None:
        self._at_s = now_s
        self._before = Count(0, 0)
        self._rates: Count | None = None

    def end_period(self, now_s: float, count: Count) -> None:
        """A period ends. One that has hardly begun goes on: its rates would be chance."""
        if now_s - self._at_s >= PERIOD_S / 2:
            self._rates = self._since(now_s, count)
            self._at_s, self._before = now_s, count

    def rates(self, now_s: float, count: Count) -> Count:
        """In a second."""
        return self._rates if self._rates is not None else self._since(now_s, count)

    def _since(self, now_s: float, count: Count) -> Count:
        passed_s = now_s - self._at_s
        if passed_s <= 0:
            return Count(0, 0)
        grown = (count.things - self._before.things, count.bytes - self._before.bytes)
        return Count(grown[0] / passed_s, grown[1] / passed_s)


class TopicCount:
    """What passed of one topic."""

    __slots__ = ("incoming", "meter_in", "meter_out", "outgoing", "seen")

    def __init__(self, now_s: float) -> None:
        self.incoming = self.outgoing = Count(0, 0)
        self.meter_in, self.meter_out = Meter(now_s), Meter(now_s)
        self.seen = (Count(-1, -1), Count(-1, -1))
        """The counts at the end of the last period."""


class Traffic:
    """The statistics of a proxy."""

    def __init__(self) -> None:
        self._connections: dict[Tunnel, tuple[str, str, Meter]] = {}
        self._topics: dict[str, TopicCount] = {}

    def open(self, tunnel: Tunnel, client: str, broker: str) -> None:
        """A tunnel between these addresses, as Java writes them."""
        self._connections[tunnel] = client, broker, Meter(trio.current_time())

    def close(self, tunnel: Tunnel) -> None:
        """It has ended."""
        self._connections.pop(tunnel, None)

    def connections(self) -> list[ConnectionStats]:
        """All tunnels of the binary protocol."""
        now_s = trio.current_time()
        found = []
        for tunnel, (client, broker, meter) in self._connections.items():
            rates = meter.rates(now_s, _from_client(tunnel))
            found.append(ConnectionStats(rates.things, rates.bytes, client, broker))
        return found

    def topics(self) -> dict[str, TopicStats]:
        """The topics of which messages were counted in this period or the one before."""
        now_s = trio.current_time()
        return {
            name: TopicStats(
                *topic.meter_in.rates(now_s, topic.incoming),
                *topic.meter_out.rates(now_s, topic.outgoing),
            )
            for name, topic in self._topics.items()
        }

    def topic(self, name: str) -> TopicCount | None:
        """The count of a topic by its whole name; None when there are too many."""
        found = self._topics.get(name)
        if found is None and len(self._topics) < TOPICS_MAX:
            found = self._topics[name] = TopicCount(trio.current_time())
        return found

    def end_period(self) -> None:
        """Make rates of what was counted; forget topics of which nothing passed."""
        now_s = trio.current_time()
        for tunnel, (_, _, meter) in self._connections.items():
            meter.end_period(now_s, _from_client(tunnel))
        for name, topic in list(self._topics.items()):
            counts = topic.incoming, topic.outgoing
            if counts == topic.seen:
                del self._topics[name]
                continue
            topic.seen = counts
            topic.meter_in.end_period(now_s, topic.incoming)
            topic.meter_out.end_period(now_s, topic.outgoing)

    async def watch(self) -> None:
        """End a period from time to time, for ever."""
        while True:
            await trio.sleep(PERIOD_S)
            self.end_period()


class TunnelTopics:
    """The topics of one tunnel's producers and consumers, whose messages it counts."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._producers: dict[int, str] = {}
        self._consumers: dict[int, str] = {}

    def up(self, frame: Frame, *, counts: bool) -> None:
        """A command of the client."""
        command = frame.command
        if frame.type == _C.PRODUCER:
            _keep(self._producers, command.producer.producer_id, command.producer.topic)
        elif frame.type == _C.SUBSCRIBE:
            _keep(self._consumers, command.subscribe.consumer_id, command.subscribe.topic)
        elif frame.type == _C.CLOSE_PRODUCER:
            self._producers.pop(command.close_producer.producer_id, None)
        elif frame.type == _C.CLOSE_CONSUMER:
            self._consumers.pop(command.close_consumer.consumer_id, None)
        elif frame.type == _C.SEND and counts:
            topic = self._topic(self._producers.get(command.send.producer_id))
            if topic is not None:
                topic.incoming = _more(topic.incoming, frame)

    def down(self, frame: Frame, *, counts: bool) -> None:
        """A command of the broker, which closes what moves to another one."""
        if frame.type == _C.CLOSE_PRODUCER:
            self._producers.pop(frame.command.close_producer.producer_id, None)
        elif frame.type == _C.CLOSE_CONSUMER:
            self._consumers.pop(frame.command.close_consumer.consumer_id, None)
        elif frame.type == _C.MESSAGE and counts:
            topic = self._topic(self._consumers.get(frame.command.message.consumer_id))
            if topic is not None:
                topic.outgoing = _more(topic.outgoing, frame)

    def _topic(self, name: str | None) -> TopicCount | None:
        return None if name is None else self._traffic.topic(name)


def _from_client(tunnel: Tunnel) -> Count:
    return Count(tunnel.up.reads, tunnel.up.bytes)


def _keep(names: dict[int, str], number: int, topic: str) -> None:
    if number in names or len(names) < IDS_MAX:
        if len(topic) > NAME_CHARS_MAX:
            names.pop(number, None)
            return
        try:
            names[number] = str(TopicName.parse(topic))
        except ProtocolError:
            names.pop(number, None)


def _more(count: Count, frame: Frame) -> Count:
    """With the messages of an entry, and its bytes as they pass: a batch is one piece, compressed
    or not.
    """
    if frame.payload is None:
        return count
    try:
        parts = split(frame.payload)
        messages = max(1, decode_head(parts.metadata).num_messages_in_batch)
    except ProtocolError:
        return count
    return Count(count.things + messages, count.bytes + parts.payload.nbytes)

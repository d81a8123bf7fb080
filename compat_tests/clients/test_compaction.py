"""Compacted topics, with the official Python client, on our broker and on Apache's."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from compat_tests.apache.server import start_apache
from compat_tests.clients.conftest import WAIT_MS, Peer, assert_nothing_more, eventually
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ServerProcess, start_geminga

Told = tuple[str, str]


def told(message: pulsar.Message) -> Told:
    """Key and value."""
    return message.partition_key(), message.data().decode()


def place(message: pulsar.Message | pulsar.MessageId) -> tuple[int, int, int]:
    """Ledger, entry, index in the batch."""
    at = message.message_id() if isinstance(message, pulsar.Message) else message
    return at.ledger_id(), at.entry_id(), at.batch_index()


def read(peer: Peer, topic: str, start: Any = pulsar.MessageId.earliest, **more: Any) -> list[Any]:
    """All messages that a reader of the compacted topic says there are."""
    reader = peer.client.create_reader(topic, start, is_read_compacted=True, **more)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT_MS))
    reader.close()
    return found


def publish(peer: Peer, topic: str, messages: list[Told], **more: Any) -> None:
    """Each by itself, in order; an empty key is none."""
    # Only where the uncompressed size is told does Apache's broker see that a message is empty.
    # This client tells it of compressed messages.
    producer = peer.producer(topic, compression_type=pulsar.CompressionType.LZ4, **more)
    for key, value in messages:
        producer.send(value.encode(), **({"partition_key": key} if key else {}))
    producer.close()


def publish_batch(peer: Peer, topic: str, messages: list[Told], **more: Any) -> None:
    """All in one batch."""
    producer = peer.producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000, **more
    )
    for key, value in messages:
        chosen = {"partition_key": key} if key else {}
        producer.send_async(value.encode(), lambda *_: None, **chosen)
    producer.flush()
    producer.close()


def kept(messages: list[Any]) -> list[Any]:
    """Without those that were compacted out of a batch: this client gives them out empty."""
    return [each for each in messages if each.partition_key()]


def internal(peer: Peer, topic: str) -> Any:
    """The topic's internal statistics."""
    return peer.admin("GET", topic.replace("://", "/") + "/internalStats")


def test_readers_get_the_last_of_each_key(peer: Peer) -> None:
    topic = peer.topic("compacted")
    publish(peer, topic, [("a", "1"), ("b", "2"), ("a", "3"), ("", "4"), ("c", "5"), ("c", "")])
    everything = [told(each) for each in read(peer, topic)]
    assert everything == [("a", "1"), ("b", "2"), ("a", "3"), ("", "4"), ("c", "5"), ("c", "")]
    peer.compact(topic)
    assert [told(each) for each in read(peer, topic)] == [("b", "2"), ("a", "3")]
    publish(peer, topic, [("b", "6"), ("d", "7")])
    expected = [("b", "2"), ("a", "3"), ("b", "6"), ("d", "7")]
    assert [told(each) for each in read(peer, topic)] == expected
    peer.compact(topic)
    expected = [("a", "3"), ("b", "6"), ("d", "7")]
    assert [told(each) for each in read(peer, topic)] == expected
    plain = peer.client.create_reader(topic, pulsar.MessageId.earliest)
    assert told(plain.read_next(WAIT_MS)) == ("a", "1")


@pytest.mark.parametrize(
    "codec",
    ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"],
)
def test_batches_are_compacted_inside(peer: Peer, codec: str) -> None:
    topic = peer.topic("batches")
    kind = getattr(pulsar.CompressionType, codec)
    publish_batch(
        peer, topic, [("a", "1"), ("b", "2"), ("a", "3"), ("", "4")], compression_type=kind
    )
    publish_batch(peer, topic, [("c", "5"), ("c", ""), ("b", "6")], compression_type=kind)
    publish_batch(peer, topic, [("d", "7"), ("d", "")], compression_type=kind)
    before = {told(each): place(each) for each in read(peer, topic)}
    peer.compact(topic)
    found = kept(read(peer, topic))
    assert [told(each) for each in found] == [("a", "3"), ("b", "6")]
    assert [place(each) for each in found] == [before[told(each)] for each in found]
    assert internal(peer, topic)["compactedLedger"]["entries"] == 2


def test_the_last_of_a_batch_is_gone(peer: Peer) -> None:
    """What a client waits for must be there: it asks for the last message."""
    topic = peer.topic("last")
    publish_batch(peer, topic, [("a", "1"), ("b", "2"), ("c", "3"), ("c", "")])
    publish(peer, topic, [("d", "4"), ("d", "")])
    peer.compact(topic)
    assert [told(each) for each in kept(read(peer, topic))] == [("a", "1"), ("b", "2")]
    publish(peer, topic, [("a", ""), ("b", "")])
    peer.compact(topic)
    assert read(peer, topic) == []


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_durable_subscriptions(peer: Peer, kind: pulsar.ConsumerType) -> None:
    topic = peer.topic("durable")
    publish(peer, topic, [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")])
    peer.compact(topic)
    publish(peer, topic, [("b", "5")])
    consumer = peer.consumer(topic, kind, is_read_compacted=True)
    got = [consumer.receive(WAIT_MS) for _ in range(4)]
    assert [told(each) for each in got] == [("b", "2"), ("a", "3"), ("c", "4"), ("b", "5")]
    assert_nothing_more(consumer)
    consumer.acknowledge_cumulative(got[1])
    consumer.close()
    consumer = peer.consumer(topic, kind, is_read_compacted=True)
    got = [consumer.receive(WAIT_MS) for _ in range(2)]
    assert [told(each) for each in got] == [("c", "4"), ("b", "5")]
    assert_nothing_more(consumer)


def test_who_may_read_compacted(peer: Peer) -> None:
    topic = peer.topic("refused")
    for kind in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared):
        with pytest.raises(pulsar.InvalidConfiguration):
            peer.consumer(topic, kind, is_read_compacted=True)


def test_where_readers_begin(peer: Peer) -> None:
    topic = peer.topic("places")
    publish(peer, topic, [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("d", "5")])
    ids = [each.message_id() for each in read(peer, topic)]
    peer.compact(topic)
    publish(peer, topic, [("a", "6")])
    left = [("b", "2"), ("a", "3"), ("c", "4"), ("d", "5"), ("a", "6")]
    # After the id that is given: of 1 nothing is left, 3 is in the middle.
    for at, first in ((0, 0), (2, 2), (4, 4)):
        assert [told(each) for each in read(peer, topic, ids[at])] == left[first:]
    assert read(peer, topic, pulsar.MessageId.latest) == []
    reader = peer.client.create_reader(topic, pulsar.MessageId.latest, is_read_compacted=True)
    reader.seek(pulsar.MessageId.earliest)
    assert [told(reader.read_next(WAIT_MS)) for _ in left] == left
    reader.seek(ids[3])
    assert [told(reader.read_next(WAIT_MS)) for _ in left[3:]] == left[3:]


def test_seek_by_time(standalone: ServerProcess) -> None:
    """On ours alone: Apache's broker loses the messages in one run of some."""
    peer = Peer(standalone)
    topic = peer.topic("times")
    publish(peer, topic, [("a", "1"), ("b", "2")])
    time.sleep(0.01)  # messages of one millisecond can't be told apart
    publish(peer, topic, [("a", "3")])
    peer.compact(topic)
    since_ms = read(peer, topic)[-1].publish_timestamp()
    publish(peer, topic, [("c", "4")])
    left = [("b", "2"), ("a", "3"), ("c", "4")]
    reader = peer.client.create_reader(topic, pulsar.MessageId.latest, is_read_compacted=True)
    for timestamp_ms, expected in ((0, left), (since_ms, left[1:])):
        reader.seek(timestamp_ms)
        assert [told(reader.read_next(WAIT_MS)) for _ in expected] == expected
    peer.client.close()


def test_what_statistics_tell(peer: Peer) -> None:
    topic = peer.topic("told")
    publish(peer, topic, [("a", "1"), ("b", "2"), ("a", "3")])
    nothing = internal(peer, topic)["compactedLedger"]
    assert (nothing["ledgerId"], nothing["entries"], nothing["size"]) == (-1, -1, -1)
    peer.compact(topic)
    found = internal(peer, topic)
    ledger = found["compactedLedger"]
    assert ledger["entries"] == 2
    assert ledger["size"] > 0
    cursor = found["cursors"]["__compaction"]
    assert cursor["properties"] == {"CompactedTopicLedger": ledger["ledgerId"]}
    assert cursor["markDeletePosition"] == found["lastConfirmedEntry"]
    path = topic.replace("://", "/")
    assert "__compaction" in peer.admin("GET", path + "/subscriptions")
    stats = peer.admin("GET", path + "/stats")
    compaction = stats["compaction"]
    assert compaction["lastCompactionRemovedEventCount"] == 1
    assert compaction["lastCompactionSucceedTimestamp"] > 0
    assert compaction["lastCompactionFailedTimestamp"] == 0
    assert stats["subscriptions"]["__compaction"]["msgBacklog"] == 0
    peer.compact(topic)
    again = internal(peer, topic)["compactedLedger"]
    assert again["ledgerId"] > ledger["ledgerId"]
    assert (again["entries"], again["size"]) == (ledger["entries"], ledger["size"])


def test_status(peer: Peer) -> None:
    topic = peer.topic("status")
    path = topic.replace("://", "/") + "/compaction"
    for method in ("GET", "PUT"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            peer.admin(method, path)
        assert refused.value.code == 404
        refused.value.close()
    publish(peer, topic, [("a", "1")])
    assert peer.admin("GET", path) == {"status": "NOT_RUN", "lastError": ""}
    peer.compact(topic)
    assert peer.admin("GET", path) == {"status": "SUCCESS", "lastError": ""}
    parts = peer.partitioned("status-parts", 2)
    peer.producer(parts).send(b"x", partition_key="k")
    peer.admin("PUT", parts.replace("://", "/") + "/compaction")
    for index in range(2):
        peer.compacted(f"{parts}-partition-{index}")


@pytest.fixture(params=["geminga", pytest.param("apache", marks=[pytest.mark.java])])
def watchful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    """The client on a server that looks at thresholds each second. It is nobody else's: Apache's
    broker compacts its own topics then too, and can't delete their namespace meanwhile.
    """
    settings = {"brokerServiceCompactionMonitorIntervalInSeconds": "1"}
    if request.param == "apache":
        with skipped_without(APACHE):
            server = start_apache(tmp_path / "work", settings=settings)
    else:
        server = start_geminga(tmp_path / "data", settings=settings)
    peer = Peer(server)
    yield peer
    peer.client.close()
    server.kill()


def test_by_threshold(watchful: Peer) -> None:
    peer = watchful
    topic = peer.topic("threshold")
    publish(peer, topic, [("a", "1"), ("a", "2")])
    path = topic.replace("://", "/")
    peer.admin("POST", path + "/compactionThreshold", 1)
    eventually(
        lambda: internal(peer, topic)["compactedLedger"]["entries"] == 1, "it isn't compacted"
    )
    assert [told(each) for each in read(peer, topic)] == [("a", "2")]


def test_views_of_a_compacted_topic(peer: Peer) -> None:
    topic = peer.topic("view")
    publish(peer, topic, [("a", "1"), ("b", "2"), ("a", "3"), ("b", "")])
    peer.compact(topic)
    publish(peer, topic, [("c", "4")])
    view = peer.client.create_table_view(topic)
    assert {key: view.get(key) for key in ("a", "b", "c")} == {"a": b"3", "b": None, "c": b"4"}
    # The client's end closes the view. Closed by itself just before, it crashes the official client
    # some times in a thousand: a segmentation fault.

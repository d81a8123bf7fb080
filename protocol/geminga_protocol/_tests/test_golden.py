"""Our bytes and numbers against those of Apache's own classes (Pulsar 4.0.7, BookKeeper 4.17.2).

The cases come from the Java classes that the docstrings of our modules name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geminga_protocol import keys, managed_ledger, payload
from geminga_protocol.bookkeeper import digest, ledger_metadata, paths
from geminga_protocol.commands import answers, consuming, lookup, producing
from geminga_protocol.encode import MessageHeader, frame, send, send_receipt
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.frames import FrameReader
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from geminga_protocol.pb.managed_ledger_pb2 import CompressionType
from geminga_protocol.pb.pulsar_api_pb2 import CommandProducerSuccess, ServerError
from geminga_protocol.topic_name import TopicName

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden_apache.json").read_text(encoding="utf-8")
)
Case = dict[str, Any]


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", GOLDEN[name], ids=lambda case: str(case)[:60])


@cases("hashes")
def test_hashes(case: Case) -> None:
    key = case["text"].encode()
    assert keys.java_string_hash(case["text"]) == case["java"]
    assert keys.murmur3_32(key) == case["murmur"]
    assert keys.plain_murmur3_32(key) == case["murmur"]
    assert keys.bundle_hash(case["text"]) == case["bundle"]
    assert keys.key_slot(key) == case["slot0"]
    assert keys.key_slot(key, first=1) == case["slot1"]


@cases("topics")
def test_topic_names(case: Case) -> None:
    if case.get("error"):
        with pytest.raises(LocalProtocolError) as caught:
            TopicName.parse(case["name"])
        assert caught.value.code == ServerError.InvalidTopicName
        return
    name = TopicName.parse(case["name"])
    assert str(name) == case["full"]
    assert name.domain == case["domain"]
    assert name.tenant == case["tenant"]
    assert name.cluster == case["cluster"]
    assert name.namespace == case["namespace"]
    assert name.namespace_portion == case["portion"]
    assert name.local_name == case["local"]
    assert name.partition_index == case["partition"]
    assert str(name.partitioned_base) == case["base"]
    assert name.persistence_naming_encoding == case["path"]
    assert name.lookup_path == case["lookup"]
    assert name.schema_name == case["schema"]
    assert str(name.partition(7)) == case["p7"]
    if case["from_path"] is not None:
        back = TopicName.from_persistence_naming_encoding(name.persistence_naming_encoding)
        assert str(back) == case["from_path"]


@cases("message_ids")
def test_message_ids(case: Case) -> None:
    place = (case["ledger"], case["entry"], case["partition"])
    first = None
    if "first_ledger" in case:
        first = MessageId(case["first_ledger"], case["first_entry"], case["partition"])
    ours = MessageId(
        *place, case.get("batch_index", -1), case.get("batch_size", 0), first_chunk=first
    )
    assert ours.serialize().hex() == case["hex"]
    back = MessageId.deserialize(bytes.fromhex(case["hex"]))
    assert back == ours
    assert back.batch_size == ours.batch_size
    assert back.first_chunk == first


@cases("digests")
def test_digests(case: Case) -> None:
    password = case["password"].encode()
    ours = digest.Digest(case["kind"], password)
    packet = ours.packet(42, 7, 6, 1234, [case["payload"].encode()])
    assert packet.hex() == case["hex"]
    assert digest.master_key(password).hex() == case["master_key"]


@cases("paths")
def test_ledger_paths(case: Case) -> None:
    assert paths.ledger(case["id"], root="") == case["long"]
    assert paths.ledger_id("/ledgers" + case["long"]) == case["id"]
    if case["short"] is not None:
        assert paths.ledger_id("/ledgers" + case["short"]) == case["id"]
        is_short = case["id"] < (1 << 31) - 1
        hybrid = paths.ledger(case["id"], paths.Layout.HYBRID, root="")
        assert hybrid == (case["short"] if is_short else case["long"])


@cases("ledger_metadata")
def test_ledger_metadata(case: Case) -> None:
    data = bytes.fromhex(case["hex"])
    parsed = ledger_metadata.parse(data)
    assert parsed.state == case["state"]
    assert (parsed.ensembleSize, parsed.quorumSize, parsed.ackQuorumSize) == (2, 2, 1)
    assert parsed.digestType == LedgerMetadataFormat.CRC32C
    assert parsed.password == b"pw"
    assert [list(each.ensembleMember) for each in parsed.segment] == [
        ["127.0.0.1:3181", "b-2"],
        ["127.0.0.1:3181", "b-3"],
    ]
    assert {each.key: each.value for each in parsed.customMetadata} == {
        "application": b"pulsar",
        "component": b"managed-ledger",
    }
    assert parsed.lastEntryId == (150 if case["state"] == LedgerMetadataFormat.CLOSED else -1)
    if case["version"] == 3:
        assert ledger_metadata.serialise(parsed) == data


@cases("managed_ledger")
def test_managed_ledger(case: Case) -> None:
    kind = CompressionType.Value(case["compression"])
    info = managed_ledger.decode_ledger_info(bytes.fromhex(case["ledger"]))
    assert [each.ledgerId for each in info.ledgerInfo] == [10, 11, 12, 13, 14]
    cursor = managed_ledger.decode_cursor_info(bytes.fromhex(case["cursor"]))
    assert (cursor.cursorsLedgerId, cursor.markDeleteEntryId) == (-1, -1)
    assert list(cursor.batchedEntryDeletionIndexInfo[0].deleteSet) == [-2]
    ours = managed_ledger.encode_ledger_info(info, kind)
    theirs = bytes.fromhex(case["ledger"])
    if case["compression"] == "NONE":
        assert ours == theirs
        assert managed_ledger.encode_cursor_info(cursor) == bytes.fromhex(case["cursor"])
    else:
        # Compressors may differ in bytes; the header must not, and both must be read.
        size = 6 + theirs[5]
        assert ours[:size] == theirs[:size]
        assert managed_ledger.decode_ledger_info(ours) == info


@cases("receipts")
def test_send_receipts(case: Case) -> None:
    producer, sequence, highest, ledger, entry = case["args"]
    assert send_receipt(producer, sequence, ledger, entry, highest).hex() == case["hex"]


@cases("messages")
def test_message_headers(case: Case) -> None:
    header = MessageHeader(case["consumer"], case["partition"])
    built = header.build(
        case["ledger"],
        case["entry"],
        len(b"payload"),
        case["redelivery"],
        case["ack_set"] or (),
        case["epoch"],
    )
    assert (built + b"payload").hex() == case["hex"]


@cases("sends")
def test_sends(case: Case) -> None:
    theirs = bytes.fromhex(case["hex"])
    (only,) = FrameReader().feed(theirs)
    assert only.payload is not None
    assert payload.verify_checksum(only.payload)
    parts = payload.split(only.payload)
    assert parts.payload == b"payload"
    metadata = payload.parse_metadata(only.payload)
    rebuilt = payload.build(metadata, parts.payload)
    front = send(
        9, 896, case["messages"], len(rebuilt), max(case["highest"], 0), is_chunk=case["chunk"]
    )
    assert (front + rebuilt).hex() == case["hex"]
    assert frame(only.command)[4:] == theirs[4 : len(theirs) - len(rebuilt)]


def test_commands() -> None:
    theirs = {name: bytes.fromhex(text) for name, text in GOLDEN["commands"].items()}
    ours = {
        "flow": consuming.flow(7, 1000),
        "success": answers.success(12),
        "error": answers.error(12, ServerError.TopicNotFound, "no topic"),
        "send_error": producing.send_error(3, 4, ServerError.ChecksumError, "bad"),
        "close_producer": producing.close_producer(3, 4),
        "close_consumer": consuming.close_consumer(3, 4),
        "partitioned_metadata_response": lookup.partitioned_metadata_response(99, 4),
        "lookup_response": lookup.lookup_response(
            8, broker_url="pulsar://h:6650", authoritative=True
        ),
        "active_consumer_change": consuming.active_consumer_change(5, True),
        "reached_end": consuming.reached_end_of_topic(5),
        "seek_time": consuming.seek(5, 6, publish_time_ms=1700000000000),
        "unsubscribe": consuming.unsubscribe(5, 6),
    }
    answer = theirs.pop("producer_success")
    assert {name: text.hex() for name, text in ours.items()} == {
        name: text.hex() for name, text in theirs.items()
    }
    (only,) = FrameReader().feed(answer)
    body: CommandProducerSuccess = only.command.producer_success
    assert (body.producer_name, body.last_sequence_id) == ("standalone-0-1", -1)
    again = producing.producer_success(5, "standalone-0-1", schema_version=body.schema_version)
    assert again == answer


def test_markers() -> None:
    theirs = {each["name"]: each["value"] for each in GOLDEN["markers"]}
    assert {each.name: each.value for each in payload.MarkerType} == theirs


def test_broker_entry_metadata() -> None:
    theirs = GOLDEN["broker_entry"]["hex"]
    assert payload.broker_entry_prefix(1700000000000, 12345).hex() == theirs

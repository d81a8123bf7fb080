"""The response that shows a stored message, and the bounds of a backlog's analysis."""

from __future__ import annotations

import pytest
from starlette.responses import Response

from geminga_broker._tests.fake_log import FakeLog
from geminga_broker.admin.rest import RestError
from geminga_broker.admin.topics import message_answer
from geminga_broker.admin.topics.message_answer import HEADERS_BYTES_MAX, message_response
from geminga_broker.log.entry import LogEntry
from geminga_broker.subscription.backlog_scan import scan_backlog
from geminga_broker.subscription.entry_filters import FilterContext
from geminga_protocol import compression, payload
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType, KeyValue, MessageMetadata


def metadata(**fields: object) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_000, **fields)


def headers(response: Response) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in response.raw_headers}


def entry(about: MessageMetadata, body: bytes = b"body") -> LogEntry:
    return LogEntry(Position(3, 4), memoryview(payload.build(about, body)))


async def test_a_text_of_a_client_begins_no_header() -> None:
    about = metadata(partition_key="a\r\nSet-Cookie: b\x00")
    response = await message_response(entry(about))
    assert headers(response)["X-Pulsar-partition-key"] == "a  Set-Cookie: b"
    assert not any(b"\r" in value or b"\n" in value for _, value in response.raw_headers)


async def test_headers_that_are_too_large_are_refused() -> None:
    fits = metadata(properties=[KeyValue(key="a", value="x" * (HEADERS_BYTES_MAX - 1000))])
    assert (await message_response(entry(fits))).body == b"body"
    large = metadata(properties=[KeyValue(key="a", value="x" * HEADERS_BYTES_MAX)])
    with pytest.raises(RestError) as caught:
        await message_response(entry(large))
    assert caught.value.status == 500


async def test_megabytes_of_metadata_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each character of a header passes the interpreter: 4 MiB would take half a second."""
    looked: list[object] = []
    monkeypatch.setattr(message_answer, "_headers", lambda *about: looked.append(about) or [])
    await message_response(entry(metadata()))
    assert len(looked) == 1
    for about in (
        metadata(properties=[KeyValue(key="a", value="x" * (1 << 20))]),
        metadata(replicate_to=["c"] * 10_000),
    ):
        with pytest.raises(RestError, match="headers"):
            await message_response(entry(about))
    assert len(looked) == 1


@pytest.mark.parametrize("inline_max", [0, 1 << 20])
async def test_payloads_are_unpacked(inline_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_answer, "INLINE_BYTES_MAX", inline_max)
    body = b"again and " * 1000
    about = metadata(compression=CompressionType.ZLIB, uncompressed_size=len(body))
    found = await message_response(entry(about, compression.compress(CompressionType.ZLIB, body)))
    assert found.body == body
    assert headers(found)["X-Pulsar-compression"] == "ZLIB"


async def test_what_cannot_be_read_is_an_error() -> None:
    about = metadata(compression=CompressionType.ZLIB, uncompressed_size=1 << 30)
    for broken in (entry(about, b"x"), LogEntry(Position(3, 4), memoryview(b"\x00\x00"))):
        with pytest.raises(RestError) as caught:
            await message_response(broken)
        assert caught.value.status == 500


async def test_an_analysis_ends_at_its_bound() -> None:
    log = FakeLog()
    log.append([(payload.build(metadata(), b"x"), 1) for _ in range(250)], lambda *_: None)
    cursor = await log.open_cursor("s", initial=EARLIEST)
    for bound, entries, aborted in ((1000, 250, False), (250, 250, False), (120, 120, True)):
        scan = await scan_backlog(
            log,
            cursor,
            None,
            (),
            FilterContext("t", "s"),
            entries_max=bound,
            time_max_s=60,
        )
        assert (scan.entries, scan.messages, scan.aborted) == (entries, entries, aborted)
        assert scan.first is not None
        assert scan.first.entry_id == 0

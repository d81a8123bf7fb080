"""Compression: round trips, wrong sizes, bombs, damaged data, missing codecs."""

from __future__ import annotations

import importlib
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_protocol.compression import compress, decompress
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType

TYPES = [each for each in CompressionType.values() if each]
LIMIT = 1 << 20


@pytest.mark.parametrize("kind", [0, *TYPES])
@pytest.mark.parametrize("data", [b"", b"a", b"hello " * 1000, bytes(range(256)) * 300])
def test_round_trip(kind: int, data: bytes) -> None:
    for given_as in (data, bytearray(data), memoryview(data)):
        packed = compress(kind, given_as)
        assert decompress(kind, packed, len(data), LIMIT) == data
        assert decompress(kind, memoryview(packed), len(data), LIMIT) == data


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("lie", [-4, -1, 1, 1000])
def test_lying_size(kind: int, lie: int) -> None:
    packed = compress(kind, b"hello " * 100)
    with pytest.raises(RemoteProtocolError):
        decompress(kind, packed, 600 + lie, LIMIT)


@pytest.mark.parametrize("kind", [0, *TYPES])
@pytest.mark.parametrize("size", [-1, LIMIT + 1, 1 << 40])
def test_size_above_the_limit(kind: int, size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="above the limit"):
        decompress(kind, b"", size, LIMIT)


@pytest.mark.parametrize("kind", TYPES)
def test_a_bomb_is_not_unpacked(kind: int) -> None:
    bomb = compress(kind, bytes(1 << 24))
    with pytest.raises(RemoteProtocolError):
        decompress(kind, bomb, 100, LIMIT)


@pytest.mark.parametrize("kind", TYPES)
def test_any_bytes_give_a_result_or_a_protocol_error(kind: int) -> None:
    @settings(max_examples=50, deadline=None, database=None)
    @given(st.binary(max_size=60), st.integers(0, 200))
    def check(data: bytes, size: int) -> None:
        try:
            assert len(decompress(kind, data, size, LIMIT)) == size
        except RemoteProtocolError:
            pass

    check()


@pytest.mark.parametrize("kind", TYPES)
def test_any_damage_gives_a_result_or_a_protocol_error(kind: int) -> None:
    packed = compress(kind, b"hello world " * 20)
    for at in range(len(packed)):
        for mask in (1, 0x80, 0xFF):
            damaged = bytearray(packed)
            damaged[at] ^= mask
            try:
                decompress(kind, damaged, 240, LIMIT)
            except RemoteProtocolError:
                pass


def test_javas_zlib_data_lacks_the_end_of_the_stream() -> None:
    deflater = zlib.compressobj()
    packed = deflater.compress(b"x" * 100) + deflater.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(CompressionType.ZLIB, packed, 100, LIMIT) == b"x" * 100


def test_unknown_type() -> None:
    with pytest.raises(LocalProtocolError):
        compress(9, b"")
    with pytest.raises(RemoteProtocolError):
        decompress(9, b"", 0, 1)


def test_missing_codec_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(LocalProtocolError, match=r"geminga\[codecs\]"):
        compress(CompressionType.LZ4, b"x")
    assert compress(CompressionType.ZLIB, b"x")

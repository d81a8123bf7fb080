"""Compression of payloads (spec PR-09).

The uncompressed size must be exactly the announced one, and at most the caller's limit; more is
never allocated. LZ4 and SNAPPY are raw blocks, ZLIB has its own header, ZSTD is one frame (Apache's
CompressionCodec classes).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from types import ModuleType

from geminga_protocol.buffers import Buffer
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType


def compress(type: CompressionType | int, data: Buffer) -> bytes:
    """Compress a payload. Raises LocalProtocolError if the codec isn't installed or unknown."""
    codec = _COMPRESS.get(int(type))
    if codec is None:
        raise LocalProtocolError(f"{type} is no compression type")
    return codec(data)


def decompress(
    type: CompressionType | int, data: Buffer, uncompressed_size: int, limit: int
) -> memoryview:
    """The uncompressed payload, as a view.

    `uncompressed_size` is the announced size and `limit` our bound, both in bytes. Raises
    RemoteProtocolError if that size is above the limit or wrong, or if the data are damaged;
    LocalProtocolError if the codec isn't installed.
    """
    if not 0 <= uncompressed_size <= limit:
        raise RemoteProtocolError(
            f"uncompressed size of {uncompressed_size} bytes is above the limit of {limit} bytes"
        )
    if type == CompressionType.NONE:
        return memoryview(data)
    codec = _DECOMPRESS.get(int(type))
    if codec is None:
        raise RemoteProtocolError(f"{type} is no compression type")
    out = codec(data, uncompressed_size)
    if len(out) != uncompressed_size:
        raise RemoteProtocolError(
            f"uncompressed size should be {uncompressed_size} bytes, but is {len(out)}"
        )
    return memoryview(out)


def _need(name: str) -> ModuleType:
    """The codec's module, imported on first use: most processes need one or none."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LocalProtocolError(
            f"{name} is not installed; it comes with geminga[codecs]"
        ) from error


def _lz4_compress(data: Buffer) -> bytes:
    return bytes(_need("lz4.block").compress(data, store_size=False))


def _lz4_decompress(data: Buffer, size: int) -> bytes:
    block = _need("lz4.block")
    try:
        return bytes(block.decompress(data, uncompressed_size=size))
    except (block.LZ4BlockError, ValueError) as error:
        raise RemoteProtocolError(f"LZ4 data are damaged: {error}") from error


def _zlib_compress(data: Buffer) -> bytes:
    return zlib.compress(data)


def _zlib_decompress(data: Buffer, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte more than announced detects a longer output; 0 would mean no bound. The stream
        # may lack its end: Java's codec flushes without writing it.
        out = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"ZLIB data are damaged: {error}") from error
    return out


def _zstd_compress(data: Buffer) -> bytes:
    return bytes(_need("zstandard").ZstdCompressor().compress(data))


def _zstd_decompress(data: Buffer, size: int) -> bytes:
    zstandard = _need("zstandard")
    try:
        # Not `decompress`, which would allocate the size that the frame itself announces.
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data) as reader:
            out = bytes(reader.read(size + 1))
    except (zstandard.ZstdError, MemoryError) as error:
        raise RemoteProtocolError(f"ZSTD data are damaged: {error}") from error
    return out


def _snappy_compress(data: Buffer) -> bytes:
    return bytes(_need("cramjam").snappy.compress_raw(data))


def _snappy_decompress(data: Buffer, size: int) -> bytes:
    cramjam = _need("cramjam")
    try:
        if cramjam.snappy.decompress_raw_len(data) != size:
            raise RemoteProtocolError("SNAPPY data announce another size than the message")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise RemoteProtocolError(f"SNAPPY data are damaged: {error}") from error


def _bytes(data: Buffer) -> bytes:
    return bytes(data)


_COMPRESS: dict[int, Callable[[Buffer], bytes]] = {
    CompressionType.NONE: _bytes,
    CompressionType.LZ4: _lz4_compress,
    CompressionType.ZLIB: _zlib_compress,
    CompressionType.ZSTD: _zstd_compress,
    CompressionType.SNAPPY: _snappy_compress,
}
_DECOMPRESS: dict[int, Callable[[Buffer, int], bytes]] = {
    CompressionType.LZ4: _lz4_decompress,
    CompressionType.ZLIB: _zlib_decompress,
    CompressionType.ZSTD: _zstd_decompress,
    CompressionType.SNAPPY: _snappy_decompress,
}

"""Hashes, equal to Java's to the bit (spec PR-15).

routing            java_string_hash, murmur3_32     MessageRouter: JavaStringHash, Murmur3_32Hash
                   boost_hash                       the C++ client's BoostHash
bundles            bundle_hash                      NamespaceBundleFactory
Key_Shared         sticky_key, key_slot             Commands.resolveStickyKey,
StickyKeyConsumerSelector
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable

from geminga_protocol.buffers import Buffer
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.messages import text
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata

KEY_SLOTS = 65536
"""Size of Key_Shared's hash range (StickyKeyConsumerSelector.DEFAULT_RANGE_SIZE)."""

NONE_KEY = b"NONE_KEY"
"""Sticky key of a message with neither key nor producer (Commands.NONE_KEY)."""

_POSITIVE = 0x7FFF_FFFF
_U32 = 0xFFFF_FFFF
_U64 = 0xFFFF_FFFF_FFFF_FFFF
_BOOST_Q = 0x9E37_79B9_7F4A_7C15
_BOOST_K = 0xDF44_2D22_CE48_59B9


def java_string_hash(key: str) -> int:
    """String.hashCode over UTF-16 units, without its sign bit; the official clients' default for
    routing by key.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = value * 31 + (units[at] << 8 | units[at + 1]) & _U32
    return value & _POSITIVE


def boost_hash(data: bytes) -> int:
    """boost::hash of a string since Boost 1.81, on 64 bits, without the sign bit of its lower half;
    the C++ and Python clients' default for routing by key.
    """
    size = len(data)
    word = _multiplied(_BOOST_Q, _BOOST_K)
    value = word ^ size
    whole = size & ~7
    for at in range(0, whole, 8):
        word = word + _BOOST_Q & _U64
        value ^= _multiplied(int.from_bytes(data[at : at + 8], "little") + word, _BOOST_K)
    word = word + _BOOST_Q & _U64
    value ^= _multiplied(_boost_rest(data[whole:]) + word, _BOOST_K)
    return _multiplied(value + word, _BOOST_K) & _POSITIVE


def _boost_rest(rest: bytes) -> int:
    """The last bytes, fewer than eight, as Boost reads them."""
    size = len(rest)
    if size >= 4:
        end = int.from_bytes(rest[-4:], "little") << (size - 4) * 8
        return end | int.from_bytes(rest[:4], "little")
    if not size:
        return 0
    middle, last = (size - 1) & 2, size >> 1
    return rest[middle] << middle * 8 | rest[last] << last * 8 | rest[0]


def _multiplied(one: int, other: int) -> int:
    product = (one & _U64) * other
    return product & _U64 ^ product >> 64


def plain_murmur3_32(data: Buffer) -> int:
    """Murmur3's 32-bit x86 hash, seed 0, without its sign bit: the plain twin of `murmur3_32`."""
    size = len(data)
    value = 0
    body = size & ~3
    for at in range(0, body, 4):
        value ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        value = (value << 13 | value >> 19) & _U32
        value = value * 5 + 0xE6546B64 & _U32
    if body < size:
        value ^= _mix(int.from_bytes(data[body:], "little"))
    value ^= size
    value = (value ^ value >> 16) * 0x85EBCA6B & _U32
    value = (value ^ value >> 13) * 0xC2B2AE35 & _U32
    return (value ^ value >> 16) & _POSITIVE


def _mix(word: int) -> int:
    word = word * 0xCC9E2D51 & _U32
    word = (word << 15 | word >> 17) & _U32
    return word * 0x1B873593 & _U32


def _choose_murmur() -> Callable[[Buffer], int]:
    try:
        import mmh3
    except ImportError:
        return plain_murmur3_32

    def fast_murmur3_32(data: Buffer, _hash: Callable[..., int] = mmh3.hash) -> int:
        return _hash(data if isinstance(data, bytes) else bytes(data), 0) & _POSITIVE

    return fast_murmur3_32


murmur3_32 = _choose_murmur()
"""Pulsar's Murmur3_32Hash.makeHash: seed 0, sign bit cleared. Uses mmh3 if it is installed."""


def bundle_hash(topic: str) -> int:
    """CRC32 of the full topic name, which selects its bundle in the namespace."""
    return zlib.crc32(topic.encode())


def key_slot(key: Buffer, first: int = 0) -> int:
    """Key_Shared's hash of a sticky key, in 1..65535: Apache keeps 0 for "not set".

    `first` is the start of the selector's range: 0 for STICKY ranges, which clients compute too, 1
    for Apache's consistent hashing (AUTO_SPLIT).
    """
    return murmur3_32(key) % (KEY_SLOTS - first) + first or 1


def sticky_key(metadata: MessageMetadata) -> bytes:
    """The key of Key_Shared: ordering key, else partition key (decoded if marked as Base64), else
    producer and sequence.

    Raises RemoteProtocolError if a key marked as Base64 is not.
    """
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        if metadata.partition_key_b64_encoded:
            return decode_key(text(metadata.partition_key))
        return text(metadata.partition_key).encode()
    if metadata.HasField("producer_name") and metadata.HasField("sequence_id"):
        return f"{text(metadata.producer_name)}-{metadata.sequence_id}".encode()
    return NONE_KEY


def decode_key(encoded: str) -> bytes:
    """Bytes of a Base64 partition key. Raises RemoteProtocolError."""
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise RemoteProtocolError(f"partition key is not Base64: {error}") from error

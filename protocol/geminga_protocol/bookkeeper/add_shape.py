"""Requests to add neighbouring entries, cut without parsing each: they differ in few bits."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from geminga_protocol.bookkeeper.v3 import encode_adds, varint
from geminga_protocol.pb.bookkeeper_protocol_pb2 import AddRequest, Request

FRAME_BYTES_MAX = 64 * 1024
"""Of longer frames the packet is most: they are parsed."""

_TXN_AT = 11
"""Where the transaction id begins: behind the length, the header's tag and length, and its version
and operation.
"""

_ids = struct.Struct(">qq").pack


class AddShape:
    """What a request to add shares with those for the entries behind it, up to the next multiple of
    128 of entry and transaction id: all but the low seven bits of these, and the packet.
    """

    __slots__ = (
        "_before", "_body_at", "_entry_at", "_entry_more", "_front", "_high_txn", "_middle",
        "_size", "_tail", "_txn_more", "ledger_id", "master_key", "next_entry_id", "recovery",
    )  # fmt: skip

    @classmethod
    def of(cls, request: Request, frame: bytes) -> AddShape | None:
        """Of a parsed request in the usual encoding; None for others."""
        asked = request.addRequest
        if len(frame) > FRAME_BYTES_MAX or asked.entryId < 0:
            return None
        recovery = asked.HasField("flag") and asked.flag == AddRequest.RECOVERY_ADD
        again = encode_adds(
            asked.ledgerId,
            asked.masterKey,
            asked.entryId,
            [asked.body],
            request.header.txnId,
            recovery=recovery,
            write_flags=asked.writeFlags,
            priority=request.header.priority,
        )
        return cls(request, frame, recovery) if b"".join(again) == frame else None

    def __init__(self, request: Request, frame: bytes, recovery: bool) -> None:
        asked = request.addRequest
        self.ledger_id = asked.ledgerId
        self.master_key = asked.masterKey
        self.recovery = recovery
        self.next_entry_id = asked.entryId + 1
        size = len(asked.body)
        tail_bytes = (3 if recovery else 0) + (
            1 + len(varint(asked.writeFlags)) if asked.writeFlags else 0
        )
        self._size = len(frame)
        self._body_at = len(frame) - tail_bytes - size
        key = self.master_key
        behind_entry = 2 + len(varint(len(key))) + len(key) + len(varint(size))
        self._entry_at = self._body_at - behind_entry - len(varint(asked.entryId))
        self._front = frame[:_TXN_AT]
        self._middle = frame[_TXN_AT + 1 : self._entry_at]
        self._before = frame[self._entry_at + 1 : self._body_at]
        self._tail = frame[self._body_at + size :]
        self._txn_more = frame[_TXN_AT] & 128
        self._entry_more = frame[self._entry_at] & 128
        self._high_txn = request.header.txnId & ~127

    def take(
        self, buffer: bytes, bounds: Sequence[int], at: int, txns: list[int], packets: list[bytes]
    ) -> int:
        """Append what the frames of the next entries have, from frame `at` on; returns the number
        of the first frame that is another.
        """
        entry_id = self.next_entry_id
        start = bounds[at]
        for number in range(at + 1, len(bounds)):
            stop = bounds[number]
            if stop - start != self._size or not entry_id & 127:
                break
            low_txn = buffer[start + _TXN_AT]
            entry_at, body_at = start + self._entry_at, start + self._body_at
            packet = buffer[body_at : stop - len(self._tail)]
            if (
                buffer[entry_at] != self._entry_more | entry_id & 127
                or low_txn & 128 != self._txn_more
                or buffer[start : start + _TXN_AT] != self._front
                or buffer[start + _TXN_AT + 1 : entry_at] != self._middle
                or buffer[entry_at + 1 : body_at] != self._before
                or packet[:16] != _ids(self.ledger_id, entry_id)
                or (self._tail and buffer[stop - len(self._tail) : stop] != self._tail)
            ):
                break
            txns.append(self._high_txn | low_txn & 127)
            packets.append(packet)
            entry_id += 1
            start = stop
        else:
            number = len(bounds)
        self.next_entry_id = entry_id
        return number - 1

"""Version 2 of the protocol on a server's connection (Apache's ReadEntryProcessor,
WriteEntryProcessor and BatchedReadEntryProcessor).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import BookiePort
from geminga_bookie.wire.auth import AUTHENTICATION_DISABLED
from geminga_bookie.wire.request_names import LAST_ENTRY
from geminga_bookie.wire.speech import FOUND_AT_ONCE, PARSED_AT_ONCE, Add, Aside, Read, Speech
from geminga_bookie.wire.speech_v3 import read_one
from geminga_bookie.wire.status import status_of
from geminga_protocol.bookkeeper import v2
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import AuthMessage, StatusCode

READ_MANY_ENTRIES_MAX = 10_000
"""Entries of one answer, whatever a request asks for."""

_MANY_BYTES = 24 + 8 + 4
"""Bytes of such an answer beside its entries, as the limit of a request counts them."""


class SpeechV2(Speech):
    """Answers are told from others by their entry, so tags are not looked at."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max

    def requests(
        self, buffer: bytes, bounds: Sequence[int], at: int = 0
    ) -> tuple[Sequence[Add | Read | Aside], int]:
        """See `Speech.requests`."""
        found: list[Add | Read | Aside] = []
        stop = min(at + PARSED_AT_ONCE, len(bounds) - 1)
        while at < stop and len(found) < FOUND_AT_ONCE:
            upto = min(at + FOUND_AT_ONCE, stop)
            self._take(buffer, bounds[at : upto + 1], found)
            at = upto
        return found, at

    def _take(self, buffer: bytes, bounds: Sequence[int], found: list[Add | Read | Aside]) -> None:
        last: Add | Read | Aside | None = found[-1] if found else None
        for each in v2.decode_requests(buffer, bounds):
            if each.version > v2.VERSION:
                last = _Other(each, self._frame_bytes_max, StatusCode.EBADVERSION)
            elif each.operation == v2.ADD:
                recovery = bool(each.flags & v2.RECOVERY_ADD)
                takes = isinstance(last, Add) and last.takes(
                    each.ledger_id, each.master_key, each.entry_id, recovery
                )
                if not isinstance(last, Add) or not takes:
                    last = Add(each.ledger_id, each.master_key, each.entry_id, recovery)
                    found.append(last)
                last.packets.append(each.packet)
                last.tags.append(0)
                continue
            elif each.operation == v2.READ and not each.flags & v2.FENCE and each.entry_id >= 0:
                if not isinstance(last, Read) or not last.takes(each.ledger_id, each.entry_id):
                    last = Read(each.ledger_id, each.entry_id)
                    found.append(last)
                last.tags.append(0)
                continue
            else:
                last = _Other(each, self._frame_bytes_max)
            found.append(last)

    def add_answers(
        self, ledger_id: int, first_entry_id: int, tags: Sequence[int],
        error: BookkeeperError | None,
    ) -> bytes:  # fmt: skip
        """See `Speech.add_answers`."""
        code = 0 if error is None else v2.CODE_OF[status_of(error)]
        entries = range(first_entry_id, first_entry_id + len(tags))
        return v2.encode_add_answers(ledger_id, entries, code)

    def read_answers(
        self, ledger_id: int, first_entry_id: int, tags: Sequence[int], packets: Sequence[bytes]
    ) -> list[Buffer]:
        """See `Speech.read_answers`."""
        made: list[Buffer] = []
        for entry_id, packet in enumerate(packets, first_entry_id):
            made += v2.encode_answer(v2.READ, 0, ledger_id, entry_id, packet)
        return made

    def read_failed(
        self, ledger_id: int, entry_id: int, tag: int, error: BookkeeperError
    ) -> list[Buffer]:
        """See `Speech.read_failed`."""
        return v2.encode_answer(v2.READ, v2.CODE_OF[status_of(error)], ledger_id, entry_id)


class _Other(Aside):
    """A read of the last entry, one that fences, one of many entries, an authentication, or a
    request that is refused with a status.
    """

    def __init__(
        self, request: v2.V2Request, frame_bytes_max: int, status: StatusCode = StatusCode.EOK
    ) -> None:
        self._request = request
        self._frame_bytes_max = frame_bytes_max
        self.status = status
        self.asks_last = request.operation == v2.READ and request.entry_id == LAST_ENTRY
        if request.operation in (v2.READ, v2.READ_MANY):
            self.name = "READ_ENTRY_FENCE" if request.flags & v2.FENCE else "READ_ENTRY"
        if status == StatusCode.EOK and request.operation == v2.AUTH:
            self.auth = request.auth

    async def serve(self, bookie: BookiePort, wait_s: float) -> Iterable[Buffer]:
        """See `Aside.serve`."""
        request = self._request
        if self.status != StatusCode.EOK:
            return self._answer(self.status)
        if request.operation == v2.AUTH:
            return self.answer_auth(AUTHENTICATION_DISABLED, b"")
        key = request.master_key if request.flags & v2.FENCE else None
        ledger_id, entry_id = request.ledger_id, request.entry_id
        try:
            if request.operation == v2.READ:
                packet = await read_one(bookie, ledger_id, entry_id, key)
                return v2.encode_answer(v2.READ, 0, ledger_id, entry_id, packet)
            if key is not None:
                await bookie.fence(ledger_id, key)
            packets = await self._read_many(bookie)
        except BookkeeperError as error:
            return self._answer(status_of(error))
        return v2.encode_read_many_answer(0, ledger_id, entry_id, request.request_id, packets)

    async def _read_many(self, bookie: BookiePort) -> list[bytes]:
        """Entries whose answer is within the bounds of the request and of a frame, at least one."""
        request = self._request
        entries_max = request.entries_max if request.entries_max > 0 else READ_MANY_ENTRIES_MAX
        left = min(request.bytes_max, self._frame_bytes_max) - _MANY_BYTES
        packets = await bookie.read(
            request.ledger_id,
            request.entry_id,
            entries_max=min(entries_max, READ_MANY_ENTRIES_MAX),
            bytes_max=max(left, 1),
        )
        fitting = 0
        for packet in packets:
            left -= len(packet) + 4
            if left < 0 and fitting:
                break
            fitting += 1
        return packets[:fitting]

    def refuse(self) -> Iterable[Buffer]:
        """See `Aside.refuse`."""
        return self._answer(StatusCode.ETOOMANYREQUESTS)

    def deny(self) -> Iterable[Buffer]:
        """See `Aside.deny`."""
        is_read = self._request.operation in (v2.ADD, v2.READ)
        return self._answer(StatusCode.EUA) if is_read else []

    def answer_auth(self, plugin_name: str, payload: bytes) -> Iterable[Buffer]:
        """See `Aside.answer_auth`."""
        return [v2.encode_auth(AuthMessage(authPluginName=plugin_name, payload=payload))]

    def _answer(self, status: StatusCode) -> list[Buffer]:
        self.status = status
        request, code = self._request, v2.CODE_OF[status]
        if request.operation == v2.READ_MANY:
            return v2.encode_read_many_answer(
                code, request.ledger_id, request.entry_id, request.request_id, []
            )
        return v2.encode_answer(request.operation, code, request.ledger_id, request.entry_id)

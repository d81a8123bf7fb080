"""Version 3 of the protocol on a server's connection (Apache's classes …ProcessorV3)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence

import trio

from geminga_bookie.errors import (
    BookkeeperError,
    IncorrectParameter,
    NoSuchEntry,
    TooManyRequests,
    UnauthorizedAccess,
)
from geminga_bookie.lac import explicit_lac, packet_lac
from geminga_bookie.port import BookiePort, LacAnswer
from geminga_bookie.wire import speech
from geminga_bookie.wire.auth import AUTHENTICATION_DISABLED
from geminga_bookie.wire.request_names import LAST_ENTRY, name_of
from geminga_bookie.wire.speech import Add, Aside, Read, Speech, WaitFor
from geminga_bookie.wire.status import status_of
from geminga_protocol.bookkeeper import v3
from geminga_protocol.bookkeeper.add_shape import AddShape
from geminga_protocol.bookkeeper.availability import encode_entries
from geminga_protocol.bookkeeper.digest import DigestError, header
from geminga_protocol.buffers import Buffer
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    AUTH,
    EBADREQ,
    EBADVERSION,
    EOK,
    EUA,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES_OF_LEDGER,
    READ_ENTRY,
    READ_LAC,
    START_TLS,
    VERSION_THREE,
    WRITE_LAC,
    AddRequest,
    GetBookieInfoRequest,
    ReadRequest,
    Request,
    Response,
    StatusCode,
)

_Serve = Callable[[BookiePort, Request, Response, float], Coroutine[None, None, None]]


class SpeechV3(Speech):
    """Tags are transaction ids."""

    def __init__(self) -> None:
        self._shape: AddShape | None = None

    def requests(
        self, buffer: bytes, bounds: Sequence[int], at: int = 0
    ) -> tuple[Sequence[Add | Read | Aside], int]:
        """See `Speech.requests`."""
        found: list[Add | Read | Aside] = []
        end = len(bounds) - 1
        left = speech.PARSED_AT_ONCE
        while at < end and left > 0 and len(found) < speech.FOUND_AT_ONCE:
            taken = self._take_adds(buffer, bounds, at, found)
            if taken > at:
                at = taken
                continue
            (request,) = v3.decode_requests(buffer, bounds[at : at + 2])
            at += 1
            left -= 1
            operation = request.header.operation
            if request.header.version != VERSION_THREE:
                found.append(_Other(request, EBADVERSION))
            elif operation == ADD_ENTRY:
                if self._add(request, found):
                    self._shape = AddShape.of(request, buffer[bounds[at - 1] : bounds[at]])
            elif operation == READ_ENTRY and _is_plain(request):
                self._read(request, found)
            else:
                found.append(_Other(request))
        return found, at

    def _take_adds(
        self, buffer: bytes, bounds: Sequence[int], at: int, found: list[Add | Read | Aside]
    ) -> int:
        """Take adds that differ little from those before; returns the number of the next frame."""
        shape = self._shape
        if shape is None:
            return at
        ledger_id, key, entry_id = shape.ledger_id, shape.master_key, shape.next_entry_id
        last = found[-1] if found else None
        if isinstance(last, Add) and last.takes(ledger_id, key, entry_id, shape.recovery):
            return shape.take(buffer, bounds, at, last.tags, last.packets)
        run = Add(ledger_id, key, entry_id, shape.recovery)
        taken = shape.take(buffer, bounds, at, run.tags, run.packets)
        if taken > at:
            found.append(run)
        return taken

    def _add(self, request: Request, found: list[Add | Read | Aside]) -> bool:
        """Returns whether it is the neighbour of one before."""
        asked = request.addRequest
        ledger_id, entry_id, key, packet = (
            asked.ledgerId, asked.entryId, asked.masterKey, asked.body,
        )  # fmt: skip
        try:
            fits = header(packet)[:2] == (ledger_id, entry_id)
        except DigestError:
            fits = False
        if not fits:
            found.append(_Other(request, EBADREQ))
            return False
        recovery = asked.HasField("flag") and asked.flag == AddRequest.RECOVERY_ADD
        last = found[-1] if found else None
        is_neighbour = isinstance(last, Add) and last.takes(ledger_id, key, entry_id, recovery)
        if not isinstance(last, Add) or not is_neighbour:
            last = Add(ledger_id, key, entry_id, recovery)
            found.append(last)
        last.packets.append(packet)
        last.tags.append(request.header.txnId)
        return is_neighbour

    def _read(self, request: Request, found: list[Add | Read | Aside]) -> None:
        asked = request.readRequest
        last = found[-1] if found else None
        if not isinstance(last, Read) or not last.takes(asked.ledgerId, asked.entryId):
            last = Read(asked.ledgerId, asked.entryId)
            found.append(last)
        last.tags.append(request.header.txnId)

    def add_answers(
        self, ledger_id: int, first_entry_id: int, tags: Sequence[int],
        error: BookkeeperError | None,
    ) -> bytes:  # fmt: skip
        """See `Speech.add_answers`."""
        entries = range(first_entry_id, first_entry_id + len(tags))
        if error is None:
            return v3.encode_add_answers(ledger_id, entries, tags)
        status = status_of(error)
        made: list[bytes] = []
        for entry_id, txn in zip(entries, tags, strict=True):
            answer = v3.response(ADD_ENTRY, txn, status)
            said = answer.addResponse
            said.status, said.ledgerId, said.entryId = status, ledger_id, entry_id
            made.append(v3.frame(answer))
        return b"".join(made)

    def read_answers(
        self, ledger_id: int, first_entry_id: int, tags: Sequence[int], packets: Sequence[bytes]
    ) -> list[Buffer]:
        """See `Speech.read_answers`."""
        made: list[Buffer] = []
        for at, (txn, packet) in enumerate(zip(tags, packets, strict=True)):
            answer = v3.response(READ_ENTRY, txn, EOK)
            said = answer.readResponse
            said.status, said.ledgerId, said.entryId = EOK, ledger_id, first_entry_id + at
            said.body = packet
            # As much as is known for nothing: the bookie may know of a later one.
            said.maxLAC = packet_lac(packet)
            made.append(v3.frame(answer))
        return made

    def read_failed(
        self, ledger_id: int, entry_id: int, tag: int, error: BookkeeperError
    ) -> list[Buffer]:
        """See `Speech.read_failed`."""
        answer = v3.response(READ_ENTRY, tag, status_of(error))
        said = answer.readResponse
        said.status, said.ledgerId, said.entryId = answer.status, ledger_id, entry_id
        return [v3.frame(answer)]


def _is_plain(request: Request) -> bool:
    asked = request.readRequest
    return (
        request.HasField("readRequest")
        and asked.entryId >= 0
        and not asked.HasField("flag")
        and not asked.HasField("previousLAC")
    )


def _is_fence(asked: ReadRequest) -> bool:
    return asked.HasField("flag") and asked.flag == ReadRequest.FENCE_LEDGER


def _is_piggyback(asked: ReadRequest) -> bool:
    return asked.HasField("flag") and asked.flag == ReadRequest.ENTRY_PIGGYBACK


def _wait_of(asked: ReadRequest) -> WaitFor | None:
    """What a read waits for; None for others, and for wrong ones."""
    if _is_fence(asked) or not asked.HasField("previousLAC"):
        return None
    if _is_piggyback(asked) and asked.entryId != LAST_ENTRY:
        return None
    return WaitFor(asked.ledgerId, asked.previousLAC, max(asked.timeOut, 0) / 1000)


class _Other(Aside):
    """Any request but plain adds and reads; one with a status is refused with it."""

    def __init__(self, request: Request, status: StatusCode = EOK) -> None:
        self._request = request
        self.status = status
        self.name = name_of(request)
        self.asks_last = self.name == "READ_ENTRY" and request.readRequest.entryId == LAST_ENTRY
        if status == EOK and request.header.operation == READ_ENTRY:
            self.wait = _wait_of(request.readRequest)
        self.starts_tls = status == EOK and request.header.operation == START_TLS
        if status == EOK and request.header.operation == AUTH and request.HasField("authRequest"):
            self.auth = request.authRequest

    async def serve(self, bookie: BookiePort, wait_s: float) -> Iterable[Buffer]:
        """See `Aside.serve`."""
        request = self._request
        operation = request.header.operation
        if self.status != EOK:
            return self._answer(self.status)
        if self.auth is not None:
            return self.answer_auth(AUTHENTICATION_DISABLED, b"")
        field, serve = _SERVE.get(operation, ("", None))
        if serve is None or not request.HasField(field):
            return self._answer(EBADREQ)
        answer = v3.response(operation, request.header.txnId, EOK)
        try:
            await serve(bookie, request, answer, wait_s)
        except BookkeeperError as error:
            answer.status = self.status = status_of(error)
        return [v3.frame(_completed(request, answer))]

    def accept_tls(self) -> Iterable[Buffer]:
        """See `Aside.accept_tls`."""
        answer = v3.response(START_TLS, self._request.header.txnId, EOK)
        answer.startTLSResponse.SetInParent()
        return [v3.frame(answer)]

    def refuse(self) -> Iterable[Buffer]:
        """See `Aside.refuse`."""
        return self._answer(status_of(TooManyRequests()))

    def deny(self) -> Iterable[Buffer]:
        """See `Aside.deny`."""
        return self._answer(EUA)

    def answer_auth(self, plugin_name: str, payload: bytes) -> Iterable[Buffer]:
        """See `Aside.answer_auth`."""
        answer = v3.response(AUTH, self._request.header.txnId, EOK)
        answer.authResponse.authPluginName, answer.authResponse.payload = plugin_name, payload
        return [v3.frame(answer)]

    def _answer(self, status: StatusCode) -> list[Buffer]:
        self.status = status
        header_of = self._request.header
        answer = v3.response(header_of.operation, header_of.txnId, status)
        return [v3.frame(_completed(self._request, answer))]


def _completed(request: Request, answer: Response) -> Response:
    """With the body of its kind, where the status stands once more."""
    operation, status = answer.header.operation, answer.status
    if operation == ADD_ENTRY:
        added = answer.addResponse
        added.status = status
        added.ledgerId, added.entryId = request.addRequest.ledgerId, request.addRequest.entryId
    elif operation == READ_ENTRY:
        read = answer.readResponse
        read.status, read.ledgerId = status, request.readRequest.ledgerId
        if not read.HasField("entryId"):
            read.entryId = request.readRequest.entryId
    elif operation == WRITE_LAC:
        answer.writeLacResponse.status = status
        answer.writeLacResponse.ledgerId = request.writeLacRequest.ledgerId
    elif operation == READ_LAC:
        answer.readLacResponse.status = status
        answer.readLacResponse.ledgerId = request.readLacRequest.ledgerId
    elif operation == FORCE_LEDGER:
        answer.forceLedgerResponse.status = status
        answer.forceLedgerResponse.ledgerId = request.forceLedgerRequest.ledgerId
    elif operation == GET_LIST_OF_ENTRIES_OF_LEDGER:
        listed = answer.getListOfEntriesOfLedgerResponse
        listed.status = status
        listed.ledgerId = request.getListOfEntriesOfLedgerRequest.ledgerId
    elif operation == GET_BOOKIE_INFO:
        answer.getBookieInfoResponse.status = status
    return answer


def known_lac(answer: LacAnswer) -> int:
    """The highest LAC that the packets say, unverified."""
    return max(packet_lac(answer.last_packet or b""), explicit_lac(answer.explicit_packet or b""))


async def read_one(
    bookie: BookiePort, ledger_id: int, entry_id: int, fence_key: bytes | None
) -> bytes:
    """An entry, or the last one; fences the ledger before, if a key is given."""
    if fence_key is not None:
        last = (await bookie.fence(ledger_id, fence_key)).last_packet
        if entry_id == LAST_ENTRY:
            if last is None:
                raise NoSuchEntry(f"ledger {ledger_id} is empty")
            return last
    if entry_id == LAST_ENTRY:
        return await bookie.last_entry(ledger_id)
    return (await bookie.read(ledger_id, entry_id, entries_max=1, bytes_max=1))[0]


async def _serve_read(
    bookie: BookiePort, request: Request, answer: Response, wait_s: float
) -> None:
    asked, said = request.readRequest, answer.readResponse
    if _is_fence(asked):
        if not asked.HasField("masterKey"):
            raise UnauthorizedAccess("a fencing read has no master key")
        said.body = await read_one(bookie, asked.ledgerId, asked.entryId, asked.masterKey)
        return
    if not asked.HasField("previousLAC"):
        said.body = await read_one(bookie, asked.ledgerId, asked.entryId, None)
        said.maxLAC = packet_lac(said.body)
        return
    piggyback = _is_piggyback(asked)
    if piggyback and asked.entryId != LAST_ENTRY:
        raise IncorrectParameter("only the next entry can come with the LAC")
    wanted = asked.previousLAC + 1
    found: bytes | None = None
    is_there = False
    if wait_s > 0:
        with trio.move_on_after(wait_s):
            found, said.maxLAC = await bookie.wait_entry(
                asked.ledgerId, max(wanted, 0), asked.previousLAC
            )
            is_there = True
    if not is_there:
        said.maxLAC = known_lac(await bookie.read_lac(asked.ledgerId))
    if not piggyback:
        said.body = await read_one(bookie, asked.ledgerId, asked.entryId, None)
    elif found is not None:
        said.body, said.entryId = found, wanted


async def _serve_write_lac(
    bookie: BookiePort, request: Request, answer: Response, wait_s: float
) -> None:
    asked = request.writeLacRequest
    await bookie.write_lac(asked.ledgerId, asked.masterKey, asked.lac, asked.body)


async def _serve_read_lac(
    bookie: BookiePort, request: Request, answer: Response, wait_s: float
) -> None:
    last, explicit = await bookie.read_lac(request.readLacRequest.ledgerId)
    if last is None and explicit is None:
        raise NoSuchEntry("the ledger is empty")
    if last is not None:
        answer.readLacResponse.lastEntryBody = last
    if explicit is not None:
        answer.readLacResponse.lacBody = explicit


async def _serve_force(
    bookie: BookiePort, request: Request, answer: Response, wait_s: float
) -> None:
    await bookie.force(request.forceLedgerRequest.ledgerId)


async def _serve_list(
    bookie: BookiePort, request: Request, answer: Response, wait_s: float
) -> None:
    entries = await bookie.list_entries(request.getListOfEntriesOfLedgerRequest.ledgerId)
    body = answer.getListOfEntriesOfLedgerResponse
    body.availabilityOfEntriesOfLedger = encode_entries(entries)


async def _serve_info(
    bookie: BookiePort, request: Request, answer: Response, wait_s: float
) -> None:
    asked, said = request.getBookieInfoRequest.requested, answer.getBookieInfoResponse
    total_bytes, free_bytes, _ = await bookie.info()
    if asked & GetBookieInfoRequest.TOTAL_DISK_CAPACITY:
        said.totalDiskCapacity = total_bytes
    if asked & GetBookieInfoRequest.FREE_DISK_SPACE:
        said.freeDiskSpace = free_bytes


_SERVE: dict[int, tuple[str, _Serve | None]] = {
    READ_ENTRY: ("readRequest", _serve_read),
    WRITE_LAC: ("writeLacRequest", _serve_write_lac),
    READ_LAC: ("readLacRequest", _serve_read_lac),
    FORCE_LEDGER: ("forceLedgerRequest", _serve_force),
    GET_LIST_OF_ENTRIES_OF_LEDGER: ("getListOfEntriesOfLedgerRequest", _serve_list),
    GET_BOOKIE_INFO: ("getBookieInfoRequest", _serve_info),
}
"""By operation: the field of the request, and what serves it."""

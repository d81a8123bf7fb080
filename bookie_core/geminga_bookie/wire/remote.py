"""A bookie behind TCP: a `BookiePort` by BookKeeper's wire protocol, for Apache's bookies and ours
(spec BK-08; Apache's PerChannelBookieClient).

All is v3, but for what a writer adds if `adds_by_v2` is wanted, on a second connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from geminga_bookie.errors import (
    BookkeeperError,
    IncorrectParameter,
    NoSuchEntry,
    StorageFailed,
)
from geminga_bookie.port import (
    ID_MAX,
    AddDone,
    BookieInfo,
    Completion,
    LacAnswer,
    check_add,
    check_lac,
    check_ledger,
    check_read,
)
from geminga_bookie.wire.adds import AddRun
from geminga_bookie.wire.dial import dial
from geminga_bookie.wire.link import RECOVERY_PRIORITY, BookieLink, Dial
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.range_read import RangeRead
from geminga_bookie.wire.status import error_of
from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.bookkeeper.availability import decode_entries
from geminga_protocol.bookkeeper.framing import WireError
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    EIO,
    ENOENTRY,
    EOK,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES_OF_LEDGER,
    READ_ENTRY,
    READ_LAC,
    WRITE_LAC,
    GetBookieInfoRequest,
    OperationType,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)
from geminga_runtime.waiters import Promise

READS_MAX = 200
"""Requests of one round of a read."""

ADD_OVERHEAD_BYTES = 128
"""More than an add's frame has beside packet and master key."""

LAST_ENTRY = -1
EARLY_ANSWER_PAUSE_S = 0.1
"""Before a long poll is repeated that the bookie answered at once."""


@asynccontextmanager
async def open_remote(
    bookie_id: str, host: str, port: int, options: RemoteOptions | None = None
) -> AsyncIterator[RemoteBookie]:
    """A bookie at `host:port`; it is connected to when the first request comes."""
    options = options or RemoteOptions()
    bookie = RemoteBookie(bookie_id, partial(dial, host, port, options), options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bookie.run)
        yield bookie
        nursery.cancel_scope.cancel()


class RemoteBookie:
    """See `BookiePort`. The owner runs `run` in a task; all requests fail when that ends.

    After a loss of the connection all requests that were not answered fail with BookieUnavailable,
    and the next one connects again. A request to a bookie that can't be reached fails after the
    attempt; those that come until the next attempt is due fail at once.
    """

    def __init__(self, bookie_id: str, dial: Dial, options: RemoteOptions) -> None:
        self.bookie_id = bookie_id
        self._options = options
        self._link = BookieLink(f"bookie {bookie_id}", dial, options)
        self._add_link = self._link
        if options.adds_by_v2 and options.tls is None and options.auth is None:
            self._add_link = BookieLink(f"bookie {bookie_id}", dial, options, by_v2=True)
        self._entry_bytes = 1024.0

    async def run(self) -> None:
        """Connect when there are requests, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._link.run)
            if self._add_link is not self._link:
                nursery.start_soon(self._add_link.run)

    def add(
        self,
        ledger_id: int,
        master_key: bytes,
        first_entry_id: int,
        packets: Sequence[bytes],
        done: AddDone,
        *,
        recovery: bool = False,
    ) -> None:
        """See `BookiePort.add`. Parts of a run may be done in any order."""
        deadline = trio.current_time() + self._options.add_timeout_s
        run = AddRun(ledger_id, master_key, first_entry_id, packets, done, recovery, deadline)
        try:
            check_ledger(ledger_id, master_key)
            check_add(ledger_id, first_entry_id, run.entries, run.bytes)
            self._check_frame(max(map(len, packets), default=0) + len(master_key))
        except BookkeeperError as error:
            self._link.complete_later(Completion(done, first_entry_id, run.entries, error))
            return
        if run.entries:
            # By v2 an answer names the entry only: one that the writer adds and one that a recovery
            # adds must not be mistaken for each other.
            is_plain = not recovery and len(master_key) == v2.MASTER_KEY_BYTES
            (self._add_link if is_plain else self._link).add(run)
        else:
            self._link.complete_later(Completion(done, first_entry_id, 0, None))

    def _check_frame(self, size: int) -> None:
        if size + ADD_OVERHEAD_BYTES > self._options.frame_bytes_max:
            raise IncorrectParameter(
                f"{size} bytes don't fit into a frame of {self._options.frame_bytes_max} bytes"
            )

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        """See `BookiePort.read`. Single reads are sent for as many entries as may fit, by rounds;
        what doesn't fit is dropped when it comes.
        """
        check_read(ledger_id, first_entry_id)
        found: list[bytes] = []
        left_bytes = bytes_max
        while len(found) < entries_max and (left_bytes > 0 or not found):
            likely = int(left_bytes / self._entry_bytes) + 1
            count = min(entries_max - len(found), likely, READS_MAX)
            reading = RangeRead(count, left_bytes, first_always=not found)
            await self._read_round(reading, ledger_id, first_entry_id + len(found), count)
            if reading.error is not None and not found:
                raise reading.error
            found += reading.packets
            left_bytes -= reading.bytes
            if reading.packets:
                mean = reading.bytes / len(reading.packets)
                self._entry_bytes += (max(mean, 1.0) - self._entry_bytes) / 4
            if len(reading.packets) < count:
                break
        return found

    async def _read_round(
        self, reading: RangeRead, ledger_id: int, first_entry_id: int, count: int
    ) -> None:
        promise: Promise[None] = Promise()
        first_txn = 0

        def take(txn: int, answer: Response | BookkeeperError) -> None:
            if isinstance(answer, BookkeeperError):
                promise.reject(answer)
                return
            at = txn - first_txn
            said = answer.readResponse
            if answer.status == EOK == said.status and said.HasField("body"):
                reading.add(at, said.body)
            else:
                what = f"{self.bookie_id}: entry {ledger_id}:{first_entry_id + at}"
                reading.fail(at, _failure(answer, what))
            if reading.is_done:
                promise.resolve(None)

        encode = partial(v3.encode_reads, ledger_id, first_entry_id, count)
        first_txn = self._link.begin(count, encode, take)
        await self._link.wait(promise, first_txn, count)

    async def fence(self, ledger_id: int, master_key: bytes) -> LacAnswer:
        """See `BookiePort.fence`. Without the explicit LAC, as Apache's ReadLastConfirmedOp: a
        question more for each ledger that is recovered, and what it confirms is read anyway.
        """
        check_ledger(ledger_id, master_key)
        what = f"{self.bookie_id}: fencing ledger {ledger_id}"
        request = self._read_request(ledger_id, LAST_ENTRY, priority=RECOVERY_PRIORITY)
        request.readRequest.flag = ReadRequest.FENCE_LEDGER
        request.readRequest.masterKey = master_key
        answer = await self._call(request)
        try:
            return LacAnswer(_body(_read_answer(answer, what), what), None)
        except NoSuchEntry:
            # Apache's bookies answer this before the fence is in their journals.
            await self.force(ledger_id)
            return LacAnswer(None, None)

    async def read_lac(self, ledger_id: int) -> LacAnswer:
        """See `BookiePort.read_lac`."""
        check_ledger(ledger_id)
        request = v3.request(READ_LAC, 0)
        request.readLacRequest.ledgerId = ledger_id
        answer = await self._call(request)
        said = answer.readLacResponse
        explicit = said.lacBody if said.HasField("lacBody") else None
        if answer.status == EOK:
            return LacAnswer(
                said.lastEntryBody if said.HasField("lastEntryBody") else None, explicit
            )
        if answer.status not in (ENOENTRY, EIO):
            raise error_of(answer.status, f"{self.bookie_id}: the LAC of ledger {ledger_id}")
        # Apache's bookies answer these also for ledgers that they don't know, and for those
        # without an entry. Asked for the last entry they tell it.
        try:
            return LacAnswer(await self.last_entry(ledger_id), explicit)
        except NoSuchEntry:
            return LacAnswer(None, explicit)

    async def write_lac(self, ledger_id: int, master_key: bytes, lac: int, packet: bytes) -> None:
        """See `BookiePort.write_lac`. Apache's bookies store a lower one too."""
        check_ledger(ledger_id, master_key)
        check_lac(ledger_id, lac, packet)
        request = v3.request(WRITE_LAC, 0)
        body = request.writeLacRequest
        body.ledgerId, body.lac, body.masterKey, body.body = ledger_id, lac, master_key, packet
        answer = await self._call(request)
        _check(answer, f"{self.bookie_id}: writing the LAC of ledger {ledger_id}")

    async def last_entry(self, ledger_id: int) -> bytes:
        """See `BookiePort.last_entry`."""
        check_ledger(ledger_id)
        what = f"{self.bookie_id}: the last entry of ledger {ledger_id}"
        answer = await self._call(self._read_request(ledger_id, LAST_ENTRY))
        return _body(_read_answer(answer, what), what)

    async def wait_entry(
        self, ledger_id: int, entry_id: int, previous_lac: int
    ) -> tuple[bytes | None, int]:
        """See `BookiePort.wait_entry`."""
        check_read(ledger_id, entry_id)
        if not -1 <= previous_lac <= ID_MAX:
            raise IncorrectParameter(f"{previous_lac} can't be a ledger's last confirmed entry")
        what = f"{self.bookie_id}: waiting for entries of ledger {ledger_id}"
        hold_s = self._options.long_poll_s
        while True:
            request = self._read_request(ledger_id, LAST_ENTRY)
            body = request.readRequest
            body.flag = ReadRequest.ENTRY_PIGGYBACK
            body.previousLAC = previous_lac
            body.timeOut = round(hold_s * 1000)
            began = trio.current_time()
            answer = await self._call(request, hold_s + self._options.read_timeout_s)
            try:
                said = _read_answer(answer, what)
            except NoSuchEntry:
                lac = previous_lac
            else:
                lac = said.maxLAC if said.HasField("maxLAC") else previous_lac
                if lac > previous_lac:
                    break
            if trio.current_time() - began < hold_s / 2:
                await trio.sleep(EARLY_ANSWER_PAUSE_S)
        if entry_id > lac:
            return None, lac
        if entry_id == previous_lac + 1 and said.HasField("body"):
            return said.body, lac
        try:
            found = await self.read(ledger_id, entry_id, entries_max=1, bytes_max=1)
        except NoSuchEntry:
            return None, lac
        return found[0], lac

    async def force(self, ledger_id: int) -> None:
        """See `BookiePort.force`."""
        check_ledger(ledger_id)
        await self._link.wait_for_adds(ledger_id)
        if self._add_link is not self._link:
            await self._add_link.wait_for_adds(ledger_id)
        request = v3.request(FORCE_LEDGER, 0)
        request.forceLedgerRequest.ledgerId = ledger_id
        answer = await self._call(request)
        _check(answer, f"{self.bookie_id}: forcing ledger {ledger_id}")

    async def list_entries(self, ledger_id: int) -> list[int]:
        """See `BookiePort.list_entries`."""
        check_ledger(ledger_id)
        request = v3.request(GET_LIST_OF_ENTRIES_OF_LEDGER, 0)
        request.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
        answer = await self._call(request)
        _check(answer, f"{self.bookie_id}: listing entries of ledger {ledger_id}")
        data = answer.getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger
        try:
            return decode_entries(data)
        except WireError as error:
            raise StorageFailed(f"{self.bookie_id}: ledger {ledger_id}: {error}") from None

    async def info(self) -> BookieInfo:
        """See `BookiePort.info`."""
        request = v3.request(GET_BOOKIE_INFO, 0)
        flags = GetBookieInfoRequest.TOTAL_DISK_CAPACITY | GetBookieInfoRequest.FREE_DISK_SPACE
        request.getBookieInfoRequest.requested = flags
        answer = await self._call(request)
        _check(answer, f"{self.bookie_id}: room on its disks")
        said = answer.getBookieInfoResponse
        return BookieInfo(max(said.totalDiskCapacity, 0), max(said.freeDiskSpace, 0))

    def _read_request(self, ledger_id: int, entry_id: int, *, priority: int = 0) -> Request:
        request = v3.request(READ_ENTRY, 0, priority=priority)
        request.readRequest.ledgerId = ledger_id
        request.readRequest.entryId = entry_id
        return request

    async def _call(self, request: Request, timeout_s: float | None = None) -> Response:
        operation = request.header.operation

        def encode(txn: int) -> bytes:
            request.header.txnId = txn
            return v3.frame(request)

        answer = await self._link.call(encode, timeout_s=timeout_s)
        if answer.header.operation != operation:
            name = OperationType.Name(operation)
            raise StorageFailed(f"{self.bookie_id}: the answer to {name} is of another kind")
        return answer


def _failure(answer: Response, what: str) -> BookkeeperError:
    """Why a read has no entry."""
    try:
        _body(_read_answer(answer, what), what)
    except BookkeeperError as error:
        return error
    raise AssertionError("the read has an entry")


def _check(answer: Response, what: str) -> None:
    if answer.status != EOK:
        raise error_of(answer.status, what)


def _read_answer(answer: Response, what: str) -> ReadResponse:
    _check(answer, what)
    if answer.readResponse.status != EOK:
        raise error_of(answer.readResponse.status, what)
    return answer.readResponse


def _body(said: ReadResponse, what: str) -> bytes:
    if not said.HasField("body"):
        raise StorageFailed(f"{what}: the bookie answered without the entry")
    return said.body

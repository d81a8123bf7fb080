"""The server before clients that do what no client should, and its bounds."""

from __future__ import annotations

import random
import struct

import pytest
import trio
import trio.testing

from geminga_bookie._tests.support import KEY, Outcomes, packet, packets
from geminga_bookie.errors import StorageFailed
from geminga_bookie.memory import MemoryBookie
from geminga_bookie.wire._tests.clients import SlowBookie, adds, serving
from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    AUTH,
    EBADREQ,
    EBADVERSION,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    EUA,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    READ_ENTRY,
    READ_LAC,
    START_TLS,
    VERSION_TWO,
    WRITE_LAC,
    ReadRequest,
)

MiB = 1 << 20


@pytest.fixture
def bookie() -> SlowBookie:
    return SlowBookie()


class TestRuns:
    async def test_adds_of_one_read_go_down_as_one(self, bookie: SlowBookie) -> None:
        async with serving(bookie) as connect:
            client = connect()
            await client.send(adds(0, 50), adds(50, 50), adds(0, 5, ledger=8), adds(100, 5))
            answers = await client.responses(110)
            assert {answer.status for answer in answers} == {EOK}
            assert bookie.runs == [(7, 0, 100, False), (8, 0, 5, False), (7, 100, 5, False)]

    async def test_each_answer_has_its_request(self, bookie: SlowBookie) -> None:
        await self._fill(bookie, 3)
        async with serving(bookie) as connect:
            client = connect()
            await client.send(adds(0, 2, key=b"another-key-20-bytes"), adds(3, 2))
            found = [
                (answer.header.txnId, answer.addResponse.entryId, answer.status)
                for answer in await client.responses(4)
            ]
            assert found == [(1000, 0, EUA), (1001, 1, EUA), (1003, 3, EOK), (1004, 4, EOK)]

    async def _fill(self, bookie: MemoryBookie, count: int) -> None:
        outcomes = Outcomes()
        bookie.add(7, KEY, 0, packets(7, range(count)), outcomes)
        await outcomes.wait_for(count)

    async def test_adds_with_other_keys_are_not_joined(self, bookie: SlowBookie) -> None:
        async with serving(bookie) as connect:
            client = connect()
            await client.send(adds(0, 2), adds(2, 2, key=b"another-key-20-bytes"), adds(2, 1))
            answers = await client.responses(5)
            assert bookie.runs == [(7, 0, 2, False), (7, 2, 2, False), (7, 2, 1, False)]
            assert sorted(answer.status for answer in answers) == [EOK, EOK, EOK, EUA, EUA]

    async def test_reads_of_one_read_are_one_range(self, bookie: SlowBookie) -> None:
        await self._fill(bookie, 30)
        async with serving(bookie, read_bytes_max=500) as connect:
            client = connect()
            await client.send(v3.encode_reads(7, 20, 12, 500), v3.encode_reads(9, 0, 1, 900))
            answers = await client.responses(13)
            assert sorted(answer.header.txnId for answer in answers) == [*range(500, 512), 900]
            for answer in answers:
                at = answer.header.txnId - 500 + 20
                said = answer.readResponse
                if answer.header.txnId == 900:
                    assert (answer.status, said.status) == (ENOLEDGER, ENOLEDGER)
                elif at < 30:
                    assert (said.entryId, said.body) == (at, packet(7, at, at - 1))
                    assert said.maxLAC == at - 1
                else:
                    assert (answer.status, said.entryId) == (ENOENTRY, at)

    async def test_v2(self, bookie: SlowBookie) -> None:
        async with serving(bookie) as connect:
            client = connect()
            made = packets(7, range(5))
            await client.send(*v2.encode_adds(KEY, made), v2.encode_read(7, 9))
            await client.send(v2.encode_read_many(7, 1, 77, 3, 10_000), v2.encode_read(7, -1))
            await client.send(v2.encode_read(7, -1, flags=v2.FENCE, master_key=KEY))
            frames = await client.frames(9)
            await client.send(*v2.encode_adds(KEY, packets(7, [5])))
            frames += await client.frames(1)
            found = [v2.decode_answers(frame, [0, len(frame)])[0] for frame in frames]
            by_kind = sorted((each.operation, each.entry_id, each.code) for each in found)
            assert by_kind == [
                *((v2.ADD, at, 0) for at in range(5)), (v2.ADD, 5, 104),
                (v2.READ, -1, 0), (v2.READ, -1, 0), (v2.READ, 9, 2), (v2.READ_MANY, 1, 0),
            ]  # fmt: skip
            (many,) = [each for each in found if each.operation == v2.READ_MANY]
            assert (many.request_id, many.packets) == (77, made[1:4])


class TestWrongRequests:
    @pytest.mark.parametrize(
        "data",
        [
            struct.pack(">I", 0xFFFFFFFF),
            struct.pack(">I", 5 * MiB),
            struct.pack(">I", 10) + b"\x0a" * 10,
            struct.pack(">I", 10) + b"\x00" * 10,
            struct.pack(">I", 10) + b"GET / HTTP",
            struct.pack(">I", 0),
            struct.pack(">II", 4, 2 << 24 | 99 << 16),
            struct.pack(">II", 4, 2 << 24 | v2.READ << 16),
        ],
    )
    async def test_garbage_ends_the_connection(self, bookie: SlowBookie, data: bytes) -> None:
        async with serving(bookie) as connect:
            client, other = connect(), connect()
            await client.send(data)
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await client.frames(1)
            await other.send(adds(0, 1))
            assert len(await other.responses(1)) == 1

    async def test_what_is_answered(self, bookie: SlowBookie) -> None:
        async with serving(bookie) as connect:
            client = connect()
            old = v3.request(READ_LAC, 1)
            old.header.version = VERSION_TWO
            assert (await client.call(old)).status == EBADVERSION
            for operation in (ADD_ENTRY, READ_ENTRY, WRITE_LAC, FORCE_LEDGER, READ_LAC):
                answer = await client.call(v3.request(operation, 2))
                assert answer.status == EBADREQ
            for operation in (GET_BOOKIE_INFO, START_TLS):
                assert (await client.call(v3.request(operation, 2))).status == EBADREQ
            other = v3.request(ADD_ENTRY, 3)
            body = other.addRequest
            body.ledgerId, body.entryId, body.masterKey, body.body = 7, 0, KEY, packet(7, 1)
            answer = await client.call(other)
            assert (answer.status, answer.addResponse.status) == (EBADREQ, EBADREQ)
            assert bookie.runs == []
            fence = v3.request(READ_ENTRY, 4)
            fence.readRequest.ledgerId, fence.readRequest.entryId = 7, -1
            fence.readRequest.flag = ReadRequest.FENCE_LEDGER
            assert (await client.call(fence)).status == EUA
            piggyback = v3.request(READ_ENTRY, 5)
            asked = piggyback.readRequest
            asked.ledgerId, asked.entryId, asked.previousLAC = 7, 3, 0
            asked.flag = ReadRequest.ENTRY_PIGGYBACK
            assert (await client.call(piggyback)).readResponse.status == EBADREQ
            hello = v3.request(AUTH, 6)
            hello.authRequest.authPluginName, hello.authRequest.payload = "any", b""
            assert (await client.call(hello)).authResponse.authPluginName == "AuthDisabledPlugin"

    async def test_a_failing_bookie(self, bookie: SlowBookie) -> None:
        async def fail(*_arguments: object, **_more: object) -> list[bytes]:
            raise StorageFailed("a disk")

        bookie.read = fail  # type: ignore[method-assign]  # a disk that fails
        async with serving(bookie) as connect:
            client = connect()
            await client.send(v3.encode_reads(7, 0, 2, 1))
            assert [answer.status for answer in await client.responses(2)] == [EIO, EIO]

    async def test_cut_after_each_byte(self, bookie: SlowBookie) -> None:
        data = adds(0, 3)
        async with serving(bookie) as connect:
            for cut_at in range(len(data) + 1):
                bookie.runs.clear()
                client = connect()
                await client.send(data[:cut_at])
                await client.stream.aclose()
                await trio.testing.wait_all_tasks_blocked()
                assert sum(run[2] for run in bookie.runs) == cut_at * 3 // len(data)

    async def test_random_bytes(self, bookie: SlowBookie) -> None:
        rng = random.Random(3)
        requests = adds(0, 3) + v3.encode_reads(7, 0, 3, 5)
        async with serving(bookie) as connect:
            for _ in range(300):
                flipped = bytearray(requests)
                for _ in range(rng.randrange(1, 4)):
                    flipped[rng.randrange(len(flipped))] = rng.randrange(256)
                client = connect()
                await client.send(bytes(flipped))
                await client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            good = connect()
            await good.send(adds(0, 1, ledger=70))
            assert (await good.responses(1))[0].status == EOK

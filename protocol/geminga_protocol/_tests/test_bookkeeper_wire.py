"""BookKeeper's wire protocol beside protobuf's own encoder, and in any chunks."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.bookkeeper import v2, v3
from geminga_protocol.bookkeeper.availability import decode_entries, encode_entries
from geminga_protocol.bookkeeper.framing import FrameCutter, WireError
from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    ADD_ENTRY,
    EFENCED,
    EOK,
    READ_ENTRY,
    AddRequest,
    AuthMessage,
    Request,
    Response,
)

KEY = b"k" * 20
IDS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 1000))
SIZES = st.lists(st.sampled_from([0, 1, 127, 128, 16_000, 16_384, 70_000]), max_size=8)


def cut(data: bytes) -> tuple[bytes, list[int]]:
    """The frames of bytes that end with one."""
    cutter = FrameCutter(1 << 30)
    found = cutter.feed(data)
    assert cutter.buffered == 0
    return found


class TestFrames:
    @given(st.lists(st.binary(max_size=60)), st.lists(st.integers(1, 50), min_size=1))
    def test_any_chunks_give_the_same_frames(self, bodies: list[bytes], steps: list[int]) -> None:
        stream = b"".join(struct.pack(">I", len(body)) + body for body in bodies)
        cutter = FrameCutter()
        found: list[bytes] = []
        at = turn = 0
        while at < len(stream):
            step = steps[turn % len(steps)]
            buffer, bounds = cutter.feed(stream[at : at + step])
            found += [buffer[a + 4 : b] for a, b in itertools.pairwise(bounds)]
            at += step
            turn += 1
        assert found == bodies
        assert cutter.buffered == 0

    def test_a_length_above_the_bound_ends_it(self) -> None:
        cutter = FrameCutter(100)
        good = struct.pack(">I", 96) + bytes(96)
        buffer, bounds = cutter.feed(good + struct.pack(">I", 97))
        assert (len(buffer), bounds) == (104, [0, 100])
        assert isinstance(cutter.failure, WireError)
        assert cutter.feed(good) == (b"", [0])

    def test_an_announced_length_holds_only_what_came(self) -> None:
        cutter = FrameCutter()
        for _ in range(1000):
            cutter.feed(struct.pack(">I", 5_000_000)[: 1 if not cutter.buffered else 4])
        assert cutter.buffered < 5000
        assert cutter.failure is None


class TestV3:
    @given(IDS, IDS, st.integers(0, (1 << 63) - 1000), SIZES, st.booleans(), st.booleans())
    def test_adds_are_what_protobuf_writes(
        self, ledger: int, first: int, txn: int, sizes: list[int], recovery: bool, high: bool
    ) -> None:
        packets = [bytes([at]) * size for at, size in enumerate(sizes)]
        made = v3.encode_adds(
            ledger, KEY, first, packets, txn,
            recovery=recovery, priority=v3.HIGH_PRIORITY if high else 0,
            write_flags=v3.DEFERRED_SYNC if high else 0,
        )  # fmt: skip
        expected = b""
        for at, packet in enumerate(packets):
            request = v3.request(ADD_ENTRY, txn + at, priority=v3.HIGH_PRIORITY if high else 0)
            body = request.addRequest
            body.ledgerId, body.entryId, body.masterKey, body.body = ledger, first + at, KEY, packet
            if recovery:
                body.flag = AddRequest.RECOVERY_ADD
            if high:
                body.writeFlags = v3.DEFERRED_SYNC
            expected += v3.frame(request)
        assert b"".join(made) == expected

    @given(IDS, IDS, st.integers(0, (1 << 63) - 1000), st.integers(0, 10))
    def test_reads_are_what_protobuf_writes(
        self, ledger: int, first: int, txn: int, count: int
    ) -> None:
        expected = b""
        for at in range(count):
            request = v3.request(READ_ENTRY, txn + at)
            request.readRequest.ledgerId, request.readRequest.entryId = ledger, first + at
            expected += v3.frame(request)
        assert v3.encode_reads(ledger, first, count, txn) == expected

    @given(
        IDS,
        st.lists(
            st.tuples(
                st.one_of(st.integers(v3.TXN_FIRST, v3.TXN_FIRST + 600), IDS),
                IDS,
                st.sampled_from([EOK, EOK, EFENCED]),
            )
        ),
    )
    def test_answers_of_any_kind(self, ledger: int, wanted: list[tuple[int, int, int]]) -> None:
        """Each answer comes out once and in order, whether it is recognized or parsed."""
        stream = b""
        for txn, entry, status in wanted:
            answer = v3.response(ADD_ENTRY, txn, status)
            said = answer.addResponse
            said.status, said.ledgerId, said.entryId = status, ledger, entry
            stream += v3.frame(answer)
        found: list[tuple[int, int]] = []
        for each in v3.decode_answers(*cut(stream)):
            if isinstance(each, v3.Added):
                found += [(each.first_txn + at, EOK) for at in range(each.entries)]
            else:
                found.append((each.header.txnId, each.status))
        assert found == [(txn, status) for txn, _, status in wanted]

    def test_neighbours_come_as_one(self) -> None:
        entries, txns = range(100, 400), range(v3.TXN_FIRST + 100, v3.TXN_FIRST + 400)
        answers = v3.encode_add_answers(7, entries, txns)
        assert v3.decode_answers(*cut(answers)) == [v3.Added(txns[0], 300)]
        expected = b""
        for entry, txn in zip(entries, txns, strict=True):
            answer = v3.response(ADD_ENTRY, txn, EOK)
            said = answer.addResponse
            said.status, said.ledgerId, said.entryId = EOK, 7, entry
            expected += v3.frame(answer)
        assert answers == expected

    @given(IDS, st.lists(st.tuples(IDS, st.one_of(IDS, st.integers(0, (1 << 64) - 1)))))
    def test_answers_are_what_protobuf_writes(
        self, ledger: int, wanted: list[tuple[int, int]]
    ) -> None:
        expected = b""
        for entry, txn in wanted:
            answer = v3.response(ADD_ENTRY, txn, EOK)
            said = answer.addResponse
            said.status, said.ledgerId, said.entryId = EOK, ledger, entry
            expected += v3.frame(answer)
        entries, txns = [each[0] for each in wanted], [each[1] for each in wanted]
        assert v3.encode_add_answers(ledger, entries, txns) == expected

    def test_an_unknown_status_is_no_success(self) -> None:
        """A status of later versions is an unknown value, and the field's default is success."""
        (frame,) = (v3.encode_add_answers(7, [5], [v3.TXN_FIRST]),)
        for at in (frame.index(b"\x10\x00\xaa") + 1, frame.rindex(b"\x08\x00\x10") + 1):
            with pytest.raises(WireError):
                v3.decode_answers(*cut(frame[:at] + b"\x7f" + frame[at + 1 :]))

    @given(st.binary(max_size=100))
    def test_garbage(self, body: bytes) -> None:
        frame = struct.pack(">I", len(body)) + body
        for decode in (v3.decode_answers, v3.decode_requests, v2.decode_answers):
            try:
                decode(*cut(frame))
            except WireError:
                pass

    def test_a_request_comes_back(self) -> None:
        request = v3.request(READ_ENTRY, 9)
        request.readRequest.ledgerId, request.readRequest.entryId = 7, -1
        found: list[Request] = v3.decode_requests(*cut(v3.frame(request)))
        assert found == [request]
        assert isinstance(v3.response(READ_ENTRY, 9, EOK), Response)


class TestV2:
    @given(IDS, IDS, SIZES, st.booleans())
    def test_adds(self, ledger: int, first: int, sizes: list[int], recovery: bool) -> None:
        packets = [struct.pack(">qq", ledger, first + at) + bytes(n) for at, n in enumerate(sizes)]
        flags = v2.RECOVERY_ADD if recovery else 0
        found = v2.decode_requests(*cut(b"".join(v2.encode_adds(KEY, packets, flags=flags))))
        assert [
            (each.operation, each.flags, each.ledger_id, each.entry_id, each.master_key)
            for each in found
        ] == [(v2.ADD, flags, ledger, first + at, KEY) for at in range(len(packets))]
        assert [each.packet for each in found] == packets

    def test_reads(self) -> None:
        stream = v2.encode_read(7, v2.LAST_ENTRY, flags=v2.FENCE, master_key=KEY)
        stream += v2.encode_read(7, 5) + v2.encode_read_many(7, 5, 99, 10, 4096)
        fence, one, many = v2.decode_requests(*cut(stream))
        assert (fence.flags, fence.entry_id, fence.master_key) == (v2.FENCE, -1, KEY)
        assert (one.operation, one.ledger_id, one.entry_id, one.master_key) == (v2.READ, 7, 5, b"")
        assert many[1:5] == (v2.READ_MANY, 0, 7, 5)
        assert (many.request_id, many.entries_max, many.bytes_max) == (99, 10, 4096)

    def test_answers(self) -> None:
        auth = AuthMessage(authPluginName="a", payload=b"p")
        parts = [
            v2.encode_add_answers(7, range(3)),
            *v2.encode_answer(v2.READ, 0, 7, 5, b"packet"),
            *v2.encode_answer(v2.READ, 2, 7, 6),
            *v2.encode_read_many_answer(0, 7, 5, 99, [b"one", b"three"]),
            v2.encode_auth(auth),
        ]
        found = v2.decode_answers(*cut(b"".join(parts)))
        assert [(each.operation, each.code, each.entry_id) for each in found] == [
            (v2.ADD, 0, 0), (v2.ADD, 0, 1), (v2.ADD, 0, 2), (v2.READ, 0, 5), (v2.READ, 2, 6),
            (v2.READ_MANY, 0, 5), (v2.AUTH, 0, -1),
        ]  # fmt: skip
        assert [each.packets for each in found[3:6]] == [[b"packet"], [], [b"one", b"three"]]
        assert (found[5].request_id, found[6].auth) == (99, auth)

    def test_answers_to_adds_come_by_neighbours(self) -> None:
        data = (
            v2.encode_add_answers(7, range(3))
            + v2.encode_add_answers(7, [3, 5], code=104)
            + v2.encode_add_answers(8, [6, 5])
        )
        assert v2.decode_add_answers(*cut(data)) == [
            (7, 0, 3, 0), (7, 3, 1, 104), (7, 5, 1, 104), (8, 6, 1, 0), (8, 5, 1, 0)
        ]  # fmt: skip
        with pytest.raises(WireError, match="operation 2 on a connection for adds"):
            v2.decode_add_answers(*cut(b"".join(v2.encode_answer(v2.READ, 0, 7, 5))))

    @given(st.binary(max_size=100), st.integers(0, 8))
    def test_garbage(self, body: bytes, operation: int) -> None:
        body = struct.pack(">I", 2 << 24 | operation << 16) + body
        frame = struct.pack(">I", len(body)) + body
        for decode in (v2.decode_answers, v2.decode_add_answers, v2.decode_requests):
            try:
                decode(*cut(frame))
            except WireError:
                pass


class TestAvailability:
    @given(st.sets(st.integers(0, 60)))
    def test_entries_come_back(self, entries: set[int]) -> None:
        assert decode_entries(encode_entries(sorted(entries))) == sorted(entries)

    def test_striped_entries_are_one_group(self) -> None:
        striped = [entry for entry in range(9_999) if entry % 3 != 2]
        data = encode_entries(striped)
        assert len(data) == 64 + 24
        assert decode_entries(data) == striped

    def test_a_list_that_says_too_much(self) -> None:
        groups = [(0, 1 << 62, 1, 1), (0, 0, (1 << 31) - 1, 0), (-1, 5, 1, 1), (0, 5, 1, 0)]
        for group in (*groups, (0, 5, 0, 1), (5, 0, 1, 1)):
            data = struct.pack(">ii56x", 0, 1) + struct.pack(">qqii", *group)
            with pytest.raises(WireError):
                decode_entries(data)
        for data in (b"", bytes(63), struct.pack(">ii56x", 1, 0), struct.pack(">ii56x", 0, 1)):
            with pytest.raises(WireError):
                decode_entries(data)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga._entries import chunks as _chunks
from geminga._entries.chunks import Chunks
from geminga_protocol.chunking import Chunk


class Desk:
    """Chunks with clocks, fed one by one; positions are (1, n) in the order of `feed`."""

    def __init__(
        self,
        messages_max: int = 10,
        expire_s: float = 60,
        oldest: bool = False,
        gets_all: bool = False,
    ) -> None:
        self.now_s = 1000.0
        now_ms = lambda: int(self.now_s * 1000)  # noqa: E731
        self.chunks = Chunks(messages_max, expire_s, oldest, now_ms, gets_all=gets_all)
        self.entry = -1

    def feed(
        self,
        uuid: str,
        chunk_id: int,
        count: int = 3,
        data: bytes | None = None,
        at: int = -1,
        published_ms: int = 999_000,
    ) -> bytes | None:
        if at < 0:
            self.entry += 1
            at = self.entry
        data = b"%d" % chunk_id if data is None else data
        return self.chunks.add(
            Chunk(uuid, chunk_id, count, count), (1, at), data, published_ms, self.now_s
        )

    def given_up(self) -> list[int]:
        found, self.chunks.to_acknowledge = self.chunks.to_acknowledge, []
        return [entry for _, entry in found]


def test_what_is_remembered_of_whole_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chunks, "SEQUENCES_MAX", 4)
    desk = Desk()
    for uuid in ("a", "b", "c"):
        for n in range(3):
            desk.feed(uuid, n)
    assert [desk.chunks.earlier((1, last)) for last in (2, 5, 8)] == [
        (),
        ((1, 3), (1, 4)),
        ((1, 6), (1, 7)),
    ]
    # The connection is lost: delivered messages can still be acknowledged.
    desk.chunks.clear()
    assert desk.chunks.earlier((1, 5)) == ((1, 3), (1, 4))
    desk.chunks.forget_up_to((1, 7))
    assert desk.chunks.take_earlier((1, 5)) == ()
    assert desk.chunks.take_earlier((1, 8)) == ((1, 6), (1, 7))


def test_two_messages_mixed() -> None:
    desk = Desk()
    fed = [desk.feed(uuid, n) for n in range(3) for uuid in ("a", "b")]
    assert fed == [None, None, None, None, b"012", b"012"]
    assert desk.chunks.earlier((1, 5)) == ((1, 1), (1, 3))
    assert desk.chunks.take_earlier((1, 4)) == ((1, 0), (1, 2))
    assert desk.chunks.take_earlier((1, 4)) == ()
    assert len(desk.chunks) == 0
    assert desk.given_up() == []


@pytest.mark.parametrize("oldest", [True, False])
def test_the_oldest_is_given_up(oldest: bool) -> None:
    desk = Desk(messages_max=2, oldest=oldest)
    desk.feed("a", 0)
    desk.feed("a", 1)
    desk.feed("b", 0)
    desk.feed("c", 0)
    assert desk.given_up() == ([0, 1] if oldest else [])
    assert desk.chunks.dropped == 1
    # Its later chunks are dropped, but not acknowledged until it has expired.
    assert desk.feed("a", 2) is None
    assert desk.given_up() == []
    assert [desk.feed("b", 1), desk.feed("b", 2)] == [None, b"012"]


def test_expiry() -> None:
    desk = Desk(expire_s=5)
    desk.feed("a", 0)
    desk.now_s += 2
    desk.feed("b", 0)
    assert desk.chunks.next_expiry_s == 1005
    assert desk.chunks.expire(1004.9) == 1005
    assert desk.chunks.expire(1005) == 1007
    assert desk.given_up() == [0]
    old = Chunk("a", 1, 3, 3)
    desk.chunks.add(old, (1, 9), b"1", published_ms=1_000_000, now_s=1006)
    assert desk.given_up() == []
    desk.now_s = 1006
    desk.chunks.add(old, (1, 9), b"1", published_ms=1_000_000, now_s=1006)
    assert desk.given_up() == [9]


def test_sent_twice_and_redelivered() -> None:
    desk = Desk()
    desk.feed("a", 0)
    desk.feed("a", 1)
    desk.feed("a", 1)
    assert desk.given_up() == [2], "another entry of the same chunk is done"
    desk.feed("a", 1, at=1)
    assert desk.given_up() == [], "the same entry again is not"
    desk.feed("a", 0, at=0)
    assert desk.given_up() == [], "everything is redelivered"
    desk.feed("a", 1, at=1)
    desk.feed("a", 0)
    assert desk.given_up() == [0, 1], "the producer began anew"
    assert [desk.feed("a", 1), desk.feed("a", 2)] == [None, b"012"]


def test_two_lives_of_a_producer() -> None:
    """Their messages have the same uuids; redelivered ones of the first life come in between."""
    desk = Desk()
    for at in (10, 11):
        desk.feed("a", at - 10, at=at, published_ms=999_900)
    again = [desk.feed("a", n, at=n, data=b"x", published_ms=999_000) for n in range(3)]
    assert again == [None, None, b"xxx"]
    assert desk.feed("a", 2, at=12, published_ms=999_900) == b"012"
    assert desk.given_up() == []
    assert desk.chunks.earlier((1, 2)) == ((1, 0), (1, 1))
    assert desk.chunks.earlier((1, 12)) == ((1, 10), (1, 11))


def test_a_new_life_does_not_end_the_messages_of_the_one_before() -> None:
    desk = Desk()
    fed = [
        desk.feed("a", n, published_ms=published_ms)
        for n in range(3)
        for published_ms in (999_000, 999_900)
    ]
    assert fed == [None, None, None, None, b"012", b"012"]
    assert desk.given_up() == []


def test_chunks_of_another_life_are_not_acknowledged() -> None:
    """Neither those without their first chunk, nor those in the place of ours."""
    desk = Desk()
    for n in range(3):
        desk.feed("a", n, at=n)
    assert desk.feed("a", 1, at=11, published_ms=999_900) is None
    assert desk.feed("a", 2, at=12, published_ms=999_900) is None
    assert desk.given_up() == []
    desk.feed("a", 0, at=0)
    desk.feed("a", 1, at=1)
    assert desk.feed("a", 1, at=11, published_ms=999_900) is None
    assert desk.given_up() == []
    assert desk.feed("a", 2, at=2) == b"012"


@pytest.mark.parametrize("first_try", [0, 1])
def test_the_first_try_comes_again(first_try: int) -> None:
    """While the second try, of the same message, is incomplete."""
    desk = Desk()
    desk.feed("a", 0, at=10)
    for n in range(first_try + 1):
        desk.feed("a", n, at=n)
    assert [desk.feed("a", n, at=10 + n) for n in (1, 2)] == [None, b"012"]
    assert desk.given_up() == []
    desk.now_s += 61
    desk.chunks.expire(desk.now_s)
    assert desk.given_up() == list(range(first_try + 1))


def test_each_chunk_with_a_time_of_its_own() -> None:
    """No known client publishes so; it is assembled nevertheless."""
    desk = Desk()
    fed = [desk.feed("a", n, published_ms=999_000 + n) for n in (0, 2, 1, 2)]
    assert fed == [None, None, None, b"012"]
    assert desk.given_up() == []


def test_a_last_chunk_that_comes_twice_is_acknowledged() -> None:
    desk = Desk()
    assert [desk.feed("a", n) for n in range(3)] == [None, None, b"012"]
    assert desk.feed("a", 2, at=2) is None
    assert desk.given_up() == []  # the same one again: a redelivery
    desk.chunks.clear()
    assert desk.feed("a", 2) is None
    assert desk.given_up() == [3]


def test_what_does_not_fit_is_given_up() -> None:
    desk = Desk()
    desk.feed("a", 0)
    assert desk.feed("a", 2) is None
    desk.feed("b", 0)
    assert desk.feed("b", 1, data=b"more than announced") is None
    assert desk.chunks.dropped == 2
    assert len(desk.chunks) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=40),
    st.integers(1, 3),
)
def test_never_wrong_bytes_nor_more_than_allowed(
    fed: list[tuple[int, int]], messages_max: int
) -> None:
    desk = Desk(messages_max=messages_max)
    for message, chunk_id in fed:
        whole = desk.feed(f"u{message}", chunk_id, data=b"%d" % chunk_id)
        assert whole in (None, b"012")
        assert len(desk.chunks) <= messages_max
        # The oracle: whole exactly if the last three chunks of it that counted were 0, 1, 2.
        if whole is not None:
            mine = [(1, n) for n, (m, _) in enumerate(fed[: desk.entry + 1]) if m == message]
            assert {*desk.chunks.earlier((1, desk.entry))} < {*mine}
            assert len(desk.chunks.earlier((1, desk.entry))) == 2


def test_what_is_incomplete_is_told() -> None:
    """By its last chunk, regardless of the cause; a message completed before isn't incomplete."""
    desk = Desk(messages_max=1)
    desk.feed("began before us", 1)
    desk.feed("began before us", 2)
    desk.feed("given up", 0)
    desk.feed("whole", 0)
    desk.feed("given up", 2)
    desk.feed("whole", 1)
    desk.feed("whole", 2)
    desk.feed("whole", 2)
    desk.feed("gap", 0)
    desk.feed("gap", 2)
    desk.feed("never ends", 0)
    desk.feed("expires", 0)
    desk.now_s += 61
    desk.chunks.expire(desk.now_s)
    desk.feed("expires", 1)
    desk.feed("expires", 2)
    assert list(desk.chunks.incomplete) == [(1, 1), (1, 4), (1, 9), (1, 13)]
    desk.chunks.clear()
    assert len(desk.chunks.incomplete) == 4


def test_chunks_whose_beginning_was_acknowledged_expire() -> None:
    """A seek to a chunked message begins behind its first chunks: for another consumer, which
    doesn't know of the seek, what is left of it never becomes a message.
    """
    desk = Desk(gets_all=True)
    desk.feed("a", 1, at=5)
    desk.feed("a", 2, at=6)
    assert desk.chunks.next_expiry_s == 1059  # a minute after it was published
    desk.chunks.expire(1058.9)
    assert desk.given_up() == []
    assert desk.chunks.expire(1059.1) == float("inf")
    assert desk.given_up() == [5, 6]
    # With others beside it, the beginning may be theirs.
    shared = Desk()
    shared.feed("a", 1)
    assert shared.chunks.next_expiry_s == float("inf")


def test_chunks_whose_beginning_comes_again_do_not_expire() -> None:
    desk = Desk(messages_max=1, gets_all=True)
    desk.feed("a", 0)
    desk.feed("b", 0)  # no room for both
    desk.feed("a", 1)
    desk.chunks.expire(2000)
    assert desk.given_up() == [1]  # the one that is incomplete for too long
    # A lost connection: all that is not acknowledged comes again.
    desk = Desk(gets_all=True)
    desk.feed("a", 1, at=1)
    desk.chunks.clear()
    assert desk.chunks.next_expiry_s == float("inf")
    # Redelivered from its beginning.
    desk.feed("a", 1, at=1)
    assert desk.feed("a", 0, at=0) is None
    desk.feed("a", 1, at=1)
    assert desk.feed("a", 2, at=2) == b"012"
    desk.chunks.expire(2000)
    assert desk.given_up() == []

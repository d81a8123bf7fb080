"""One task gives up all requests whose answers are late (BK-08)."""

from __future__ import annotations

import trio
import trio.testing

from geminga_bookie.errors import RequestTimeout
from geminga_bookie.wire.late_answers import Expected, LateAnswers


async def test_each_is_given_up_at_its_own_limit(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    late = LateAnswers("bookie one")
    nursery.start_soon(late.run)
    given_up: list[tuple[str, float]] = []

    def expect(txn: int, name: str, limit_s: float) -> None:
        def reject(error: RequestTimeout) -> None:
            assert f"{limit_s:g} s" in str(error)
            given_up.append((name, trio.current_time() - began))

        late.expect(txn, Expected(reject, limit_s, None, 0))

    began = trio.current_time()
    expect(1, "a long poll", 30.0)
    await trio.sleep(1)
    expect(2, "a read", 5.0)
    expect(3, "an answered read", 5.0)
    expect(4, "another read", 5.0)
    late.forget(3)
    await trio.sleep(2)
    expect(5, "a later read", 5.0)
    await trio.sleep(100)
    assert given_up == [
        ("a read", 6.0),
        ("another read", 6.0),
        ("a later read", 8.0),
        ("a long poll", 30.0),
    ]
    expect(6, "a read after a pause", 5.0)
    await trio.sleep(100)
    assert given_up[4:] == [("a read after a pause", 108.0)]
    nursery.cancel_scope.cancel()

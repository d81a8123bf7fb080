from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from geminga._acknowledging.nacks import NegativeAcks
from geminga.options import MultiplierBackoff

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 8), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_equal_to_a_plain_dict(steps: list[tuple[str, int, int]], with_backoff: bool) -> None:
    backoff = MultiplierBackoff(1, 4, 2) if with_backoff else None
    nacks = NegativeAcks(3, backoff)
    oracle: dict[tuple[int, int], float] = {}
    now_s = 0.0
    for kind, number, redeliveries in steps:
        position = (0, number)
        if kind == "add":
            delay_s = backoff.delay_s(redeliveries) if backoff else 3
            due_s = oracle.setdefault(position, now_s + delay_s)
            assert nacks.add(position, redeliveries, now_s) == due_s
        elif kind == "forget":
            nacks.forget(position)
            oracle.pop(position, None)
        elif kind == "clear":
            nacks.clear()
            oracle.clear()
        else:
            now_s += number
            expected = {p for p, due_s in oracle.items() if due_s <= now_s}
            assert set(nacks.due(now_s)) == expected
            oracle = {p: due_s for p, due_s in oracle.items() if p not in expected}
        assert nacks.next_due_s() == min(oracle.values(), default=math.inf)
        assert len(nacks) == len(oracle)

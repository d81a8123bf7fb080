"""Draining hashes (BR-31, PIP-379) against a table of everything that is held."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import position
from geminga_broker.subscription.strategies.draining_hashes import DrainingHashes

NAMES = ("a", "b", "c")

steps = st.lists(
    st.tuples(
        st.sampled_from(("hold", "hold", "release", "move", "block")),
        st.integers(0, 40),
        st.integers(0, 9),
    ),
    max_size=80,
)


def table_of(holders: DrainingHashes[str]) -> dict[int, tuple[str, int, int]]:
    return {
        each.hash: (consumer, each.unack_msgs, each.blocked_attempts)
        for consumer, hashes in holders.draining_hashes().items()
        for each in hashes
    }


@given(steps)
def test_counts_against_a_table(script: list[tuple[str, int, int]]) -> None:
    holders: DrainingHashes[str] = DrainingHashes()
    owners = [NAMES[0]] * 10
    held: dict[int, tuple[str, int]] = {}
    attempts: dict[int, int] = {}
    cleared = dict.fromkeys(NAMES, 0)

    def drains(key_hash: int) -> bool:
        return any(h == key_hash and c != owners[h] for c, h in held.values())

    for what, entry, key_hash in script:
        if what == "hold" and entry not in held and not drains(key_hash):
            held[entry] = (owners[key_hash], key_hash)
            holders.hold(owners[key_hash], [(position(entry), key_hash)])
        elif what == "release":
            consumer, its_hash = held.get(entry, ("", -1))
            drained = its_hash >= 0 and drains(its_hash)
            held.pop(entry, None)
            ended = drained and not drains(its_hash)
            if ended:
                cleared[consumer] += 1
                attempts.pop(its_hash)
            assert holders.release(position(entry)) == (its_hash if ended else None)
        elif what == "move":
            first, last = sorted((key_hash, entry % 10))
            new = NAMES[entry % 3]
            for slot in range(first, last + 1):
                before = drains(slot)
                holder = next((c for c, h in held.values() if h == slot), "")
                owners[slot] = new
                if before and not drains(slot):
                    cleared[holder] += 1
                    del attempts[slot]
                elif drains(slot):
                    attempts.setdefault(slot, 0)
            holders.moved([(first, last)], owners.__getitem__)
        elif what == "block":
            holders.blocks(key_hash)
            if key_hash in attempts:
                attempts[key_hash] += 1
        assert len(holders) == len(held)
        assert holders.draining == len(attempts)
        assert table_of(holders) == {
            h: (
                next(c for c, other in held.values() if other == h),
                sum(other == h for _, other in held.values()),
                blocked,
            )
            for h, blocked in attempts.items()
        }
        assert {c: holders.cleared_by(c) for c in NAMES} == cleared
    holders.gone(NAMES[0])
    assert holders.cleared_by(NAMES[0]) == 0
    holders.clear()
    assert (len(holders), holders.draining) == (0, 0)

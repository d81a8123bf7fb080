"""Key_Shared under joins, leaves, redelivery and stuck consumers (BR-31): a part of the steps that
`key_shared_steps` takes by hand.
"""

from __future__ import annotations

import pytest

from geminga_broker.subscription._tests import key_shared_steps
from geminga_protocol._tests.rounds import rounds

STEPS = 10_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(1, rounds(14) + 1), 24])
async def test_random_steps(seed: int) -> None:
    model = await key_shared_steps.run(seed, STEPS)
    assert model.sends > STEPS / 20
    assert len(model.acked) == len(model.entries)

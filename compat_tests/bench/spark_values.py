"""What the loads of Spark's rows read and write: records of 200 bytes in Avro."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from geminga.options import ProducerKeywords
from geminga.schema import Avro

SIZE_BYTES = 200
FIRST_ID = 7_000_000_000
COUNTRIES = tuple("C" + chr(ord("A") + number) for number in range(20))
AMOUNTS = 4000
"""Different amounts. They are quarters: their sum is exact in any order."""
_COMMENT_BYTES = 83
_SEED = 7


@dataclass
class Sale:
    """One message."""

    id: int
    amount: float
    country: str
    customer: str
    quantity: int
    comment: str
    """Of its own for each: no compression and no dictionary makes it smaller."""


def schema() -> Avro[Sale]:
    """As the topic has it."""
    return Avro(Sale)


def sales(first: int, count: int) -> Iterator[Sale]:
    """So many, from a number on."""
    chance = random.Random(_SEED + first)
    for number in range(first, first + count):
        yield Sale(
            FIRST_ID + number,
            _amount(number),
            COUNTRIES[number % len(COUNTRIES)],
            f"customer-{number % 10_000:05d}",
            number % 60,
            chance.randbytes(_COMMENT_BYTES).hex(),
        )


def amount_of_all(count: int) -> float:
    """The sum of the first so many amounts."""
    whole, rest = divmod(count, AMOUNTS)
    return whole * sum(map(_amount, range(AMOUNTS))) + sum(map(_amount, range(rest)))


def _amount(number: int) -> float:
    return number % AMOUNTS * 0.25


BATCHES: ProducerKeywords = {
    "batching_max_messages": 1000,
    "batching_max_bytes": 128 * 1024,
    "batching_max_publish_delay_s": 0.001,
    "max_pending_messages": 20_000,
}
"""Of every producer here, ours and the connector's: the connector's defaults."""

"""Routing of messages to partitions (spec SDK-03; RoundRobinPartitionMessageRouterImpl,
SinglePartitionMessageRouterImpl). Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from geminga.options import HashingScheme, ProducerOptions, RoutingMode
from geminga_protocol.keys import boost_hash, java_string_hash, murmur3_32


def _murmur_of_text(key: str) -> int:
    return murmur3_32(key.encode())


def _boost_of_text(key: str) -> int:
    return boost_hash(key.encode())


HASHES: dict[HashingScheme, Callable[[str], int]] = {
    HashingScheme.JAVA_STRING_HASH: java_string_hash,
    HashingScheme.MURMUR3_32: _murmur_of_text,
    HashingScheme.BOOST_HASH: _boost_of_text,
}


class Router:
    """Chooses partitions for messages, with or without a key.

    Without a key the choice stays until `rotate`, which the producer calls when the chosen
    partition's batch is sealed: so batches fill, and partitions take turns.
    """

    def __init__(self, options: ProducerOptions, partitions: int, chance: random.Random) -> None:
        self._hash = HASHES[options.hashing_scheme]
        self._partitions = partitions
        order = list(range(partitions))
        chance.shuffle(order)
        limit = options.round_robin_partitions_max
        if options.routing_mode is RoutingMode.SINGLE_PARTITION:
            limit = 1
        self._limit = limit
        self._order = order[:limit]
        self._at = 0

    @property
    def current(self) -> int:
        """The partition for messages without a key."""
        return self._order[self._at]

    @property
    def turns(self) -> int:
        """Number of partitions that take turns."""
        return len(self._order)

    def rotate(self) -> None:
        """Move on to the next partition."""
        self._at = (self._at + 1) % len(self._order)

    def by_key(self, key: str) -> int:
        """The partition of a key, the same in every client with this hashing scheme."""
        return self._hash(key) % self._partitions

    def grow(self, partitions: int) -> None:
        """Add partitions: they take turns, within the limit, and keys move."""
        self._order += range(self._partitions, partitions)
        del self._order[self._limit or partitions :]
        self._partitions = partitions

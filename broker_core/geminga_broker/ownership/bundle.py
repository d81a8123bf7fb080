"""Names of bundles: the unit in which topics are owned by brokers (spec CL-03)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import trio

from geminga_protocol.keys import bundle_hash

HASH_MAX = 0xFFFFFFFF

NAMES_A_TURN = 4096
"""Names that are looked at while other tasks wait; a few milliseconds."""

_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})", re.ASCII)


def range_text(low: int, high: int) -> str:
    """The name of a range, `0xlow_0xhigh`."""
    return f"0x{low:08x}_0x{high:08x}"


class BundleId(NamedTuple):
    """A hash range of a namespace's topics. As text: `tenant/namespace/0xlow_0xhigh`."""

    namespace: str
    range: str
    """`0xlow_0xhigh`; the upper end belongs to the next bundle, but 0xffffffff to the last."""

    @classmethod
    def parse(cls, text: str) -> BundleId:
        """Raises ValueError."""
        namespace, _, hashes = text.rpartition("/")
        if namespace.count("/") != 1 or not _RANGE.fullmatch(hashes):
            raise ValueError(f"no name of a bundle: {text[:200]!r}")
        return cls(namespace, hashes)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest hash, and the one behind the highest."""
        found = _RANGE.fullmatch(self.range)
        if found is None:
            raise ValueError(f"no range of hashes: {self.range!r}")
        low, high = (int(text, 16) for text in found.groups())
        return low, high + 1 if high == HASH_MAX else high

    def covers(self, topic: str) -> bool:
        """Whether a topic of this full name belongs to it."""
        low, end = self.bounds
        return self._is_beneath(topic) and low <= bundle_hash(topic) < end

    def _is_beneath(self, topic: str) -> bool:
        return topic.partition("://")[2].startswith(f"{self.namespace}/")

    async def among(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that belong to it, in the same order; other tasks run meanwhile."""
        low, end = self.bounds
        names = list(topics)
        found: list[str] = []
        for at in range(0, len(names), NAMES_A_TURN):
            found += [
                name
                for name in names[at : at + NAMES_A_TURN]
                if self._is_beneath(name) and low <= bundle_hash(name) < end
            ]
            await trio.lowlevel.checkpoint()
        return found

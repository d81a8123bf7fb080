"""Names of bundles: the unit in which topics are owned by brokers (spec CL-03)."""

from __future__ import annotations

import re
from typing import NamedTuple

from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.keys import bundle_hash
from geminga_protocol.topic_name import TopicName

HASH_MAX = 0xFFFFFFFF

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
        try:
            if TopicName.parse(topic).namespace != self.namespace:
                return False
        except LocalProtocolError:
            return False
        low, end = self.bounds
        return low <= bundle_hash(topic) < end

"""The racks and groups of bookies, as `pulsar-admin bookies set-bookie-rack` writes them (spec
BK-25; Pulsar's BookieRackAffinityMapping, BookiesRackConfiguration).

The node `/bookies` of the metadata store has JSON: by group, by bookie, its `rack` and `hostname`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

BOOKIES = "/bookies"
"""Path of the node."""


@dataclass(frozen=True, slots=True)
class Racks:
    """What the node says."""

    by_bookie: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _by_host: Mapping[str, str] = field(default_factory=dict)

    def rack(self, bookie_id: str, host: str | None) -> str | None:
        """The bookie's rack: its own, or that of another one on its host, as in Pulsar, where hosts
        have racks. None if there is none.
        """
        rack = self.by_bookie.get(bookie_id)
        if rack is None and host is not None:
            rack = self._by_host.get(host)
        return rack


def parse_racks(value: bytes, host_of: Callable[[str], str | None]) -> Racks:
    """From the node's value; `host_of` knows the hosts of ids that aren't addresses. Raises
    ValueError.
    """
    try:
        found = json.loads(value) if value.strip() else {}
    except RecursionError:
        raise ValueError(f"{BOOKIES} is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"{BOOKIES} is no JSON object")
    by_bookie: dict[str, str] = {}
    by_host: dict[str, str] = {}
    groups: dict[str, frozenset[str]] = {}
    for group, members in found.items():
        if not isinstance(members, dict):
            raise ValueError(f"{BOOKIES}: group {group} is no JSON object")
        groups[group] = frozenset(members)
        for bookie_id, info in members.items():
            rack = _rack(info)
            if rack is not None:
                by_bookie[bookie_id] = rack
                host = host_of(bookie_id)
                if host is not None:
                    by_host[host] = rack
    return Racks(by_bookie, groups, by_host)


def _rack(info: object) -> str | None:
    rack = info.get("rack") if isinstance(info, dict) else None
    if not isinstance(rack, str) or not rack.strip(" /"):
        return None
    # Without the slash at the end, as Apache's NodeBase: with it, it would be another rack.
    rack = rack.strip().rstrip("/")
    return rack if rack.startswith("/") else f"/{rack}"

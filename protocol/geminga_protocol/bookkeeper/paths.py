"""Paths of BookKeeper's metadata beneath its root, /ledgers (spec BK-20).

Ledger ids are spread over a tree, so that no node has too many children: 19 digits cut 3-4-4-4-4
(LongHierarchicalLedgerManager), or, where the node LAYOUT names HierarchicalLedgerManager as
Pulsar's set-up does, ten digits cut 2-4-4 for ids below 2^31 - 1.
"""

from __future__ import annotations

import re
from enum import Enum

ROOT = "/ledgers"
LAYOUT = f"{ROOT}/LAYOUT"
"""Its value names the class that lays out the tree."""
INSTANCE_ID = f"{ROOT}/INSTANCEID"
"""Its value is the id of the bookies' cluster."""

_LONG = re.compile(r"(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})", re.ASCII)
_SHORT = re.compile(r"(\d{2})/(\d{4})/L(\d{4})", re.ASCII)
_ID_MAX = (1 << 63) - 1
_SHORT_ID_END = (1 << 31) - 1


class Layout(Enum):
    """Where ledgers are."""

    LONG = "LongHierarchicalLedgerManagerFactory"
    HYBRID = "HierarchicalLedgerManagerFactory"


def layout_of(value: bytes | None) -> Layout:
    """The layout in the value of the node LAYOUT; the long one without it. Raises ValueError for
    one that is not known.
    """
    if value is None:
        return Layout.LONG
    lines = value.decode(errors="replace").split("\n")
    factory = lines[1].partition(":")[0].rpartition(".")[2] if len(lines) > 1 else ""
    try:
        return Layout(factory)
    except ValueError:
        known = " or ".join(each.value for each in Layout)
        raise ValueError(f"{LAYOUT} names {factory!r}; only {known} are known") from None


def ledger(ledger_id: int, layout: Layout = Layout.LONG, root: str = ROOT) -> str:
    """Path of the ledger's metadata. Raises ValueError for a negative id."""
    if not 0 <= ledger_id <= _ID_MAX:
        raise ValueError(f"{ledger_id} is no ledger id")
    if layout is Layout.HYBRID and ledger_id < _SHORT_ID_END:
        digits = f"{ledger_id:010}"
        return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id(path: str, root: str = ROOT) -> int | None:
    """The id in a path of this tree or of the older one (ids below 2^31, as 2-4-4 digits); None for
    any other node beneath the root.
    """
    if not path.startswith(f"{root}/"):
        return None
    tail = path[len(root) + 1 :]
    found = _LONG.fullmatch(tail) or _SHORT.fullmatch(tail)
    return int("".join(found.groups())) if found else None


def id_generator(root: str = ROOT) -> str:
    """Prefix of the sequential nodes whose numbers become ledger ids."""
    return f"{root}/idgen/ID-"


READONLY = "readonly"
"""Node among the available bookies, with those that only serve reads."""


def available(root: str = ROOT) -> str:
    """Parent of the nodes of bookies that take new entries."""
    return f"{root}/available"


def readonly(root: str = ROOT) -> str:
    """Parent of the nodes of bookies that only serve reads."""
    return f"{available(root)}/{READONLY}"


def cookies(root: str = ROOT) -> str:
    """Parent of the bookies' cookies."""
    return f"{root}/cookies"


def cookie(bookie_id: str, root: str = ROOT) -> str:
    """Path of a bookie's cookie, which binds its id to its directories."""
    return f"{cookies(root)}/{bookie_id}"

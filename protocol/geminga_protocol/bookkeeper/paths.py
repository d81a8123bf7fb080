"""Paths of BookKeeper's metadata beneath its root, /ledgers (spec BK-20).

Ledger ids spread over a tree of directories, so that no directory grows without bound
(LongHierarchicalLedgerManager): 19 digits cut 3-4-4-4-4.
"""

from __future__ import annotations

import re

ROOT = "/ledgers"

_LONG = re.compile(r"(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})", re.ASCII)
_SHORT = re.compile(r"(\d{2})/(\d{4})/L(\d{4})", re.ASCII)
_ID_MAX = (1 << 63) - 1


def ledger(ledger_id: int, root: str = ROOT) -> str:
    """Long hierarchical path of the ledger's metadata. Raises ValueError for a negative id."""
    if not 0 <= ledger_id <= _ID_MAX:
        raise ValueError(f"{ledger_id} is no ledger id")
    digits = f"{ledger_id:019}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def short_ledger(ledger_id: int, root: str = ROOT) -> str:
    """Path in the older tree that Apache's hybrid manager uses for ids below 2^31: 2-4-4."""
    if not 0 <= ledger_id < 1 << 31:
        raise ValueError(f"{ledger_id} has no short path")
    digits = f"{ledger_id:010}"
    return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


def ledger_id(path: str, root: str = ROOT) -> int | None:
    """The id in a path of either tree; None for any other node beneath the root."""
    if not path.startswith(f"{root}/"):
        return None
    tail = path[len(root) + 1 :]
    found = _LONG.fullmatch(tail) or _SHORT.fullmatch(tail)
    return int("".join(found.groups())) if found else None


def available(bookie_id: str = "", root: str = ROOT) -> str:
    """Ephemeral node of a writable bookie, or their directory."""
    return _in(f"{root}/available", bookie_id)


def readonly(bookie_id: str = "", root: str = ROOT) -> str:
    """Ephemeral node of a read-only bookie, or their directory."""
    return _in(f"{root}/available/readonly", bookie_id)


def cookie(bookie_id: str = "", root: str = ROOT) -> str:
    """A bookie's cookie, or their directory."""
    return _in(f"{root}/cookies", bookie_id)


def instance_id(root: str = ROOT) -> str:
    """Node that holds the id of the cluster."""
    return f"{root}/INSTANCEID"


def id_generator(root: str = ROOT) -> str:
    """Prefix of the sequential nodes whose number is a new ledger's id."""
    return f"{root}/idgen/ID-"


def _in(directory: str, name: str) -> str:
    return f"{directory}/{name}" if name else directory

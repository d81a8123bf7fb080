"""Paths of BookKeeper's metadata beneath its root, /ledgers (spec BK-20).

Ledger ids are spread over a tree, so that no node has too many children
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

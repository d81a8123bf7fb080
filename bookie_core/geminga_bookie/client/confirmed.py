"""The last add confirmed in a bookie's answer, checked (spec BK-20, BK-23)."""

from __future__ import annotations

from geminga_bookie.errors import DigestMismatch
from geminga_bookie.port import LacAnswer
from geminga_protocol.bookkeeper.digest import Digest, DigestError


def confirmed_in(answer: LacAnswer, ledger_id: int, digest: Digest) -> int:
    """The higher LAC of both packets, -1 without any. Raises DigestMismatch for one that the
    ledger's writer didn't make: a bookie's word alone doesn't count.
    """
    lac = -1
    try:
        if answer.last_packet is not None:
            lac = digest.confirmed_in(ledger_id, answer.last_packet)
        if answer.explicit_packet is not None:
            lac = max(lac, digest.explicit_lac(ledger_id, answer.explicit_packet))
    except DigestError as error:
        raise DigestMismatch(f"ledger {ledger_id}: {error}") from error
    return lac

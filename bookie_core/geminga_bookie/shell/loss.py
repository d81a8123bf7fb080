"""What `bookieshell acceptloss` does with a cluster (spec BK-02, BK-11)."""

from __future__ import annotations

from dataclasses import replace

from geminga_bookie.autorecovery.tools import Cluster, ToolFailed
from geminga_bookie.client.api import LOSS_ACCEPTED, LedgerState
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.errors import MetadataConflict, NoSuchLedger
from geminga_protocol.errors import RemoteProtocolError


async def accept_loss(at: Cluster, ledger_id: int) -> int:
    """Mark the ledger. Its next recovery, by whomever, and the check of its bookies obey. Repeated
    calls do no harm. Raises ToolFailed, MetadataError.
    """
    store = LedgerMetadataStore(at.store)
    while True:
        try:
            known = await store.read(ledger_id)
            custom = {**known.metadata.custom_metadata, LOSS_ACCEPTED: b"true"}
            known = await store.update(known, replace(known.metadata, custom_metadata=custom))
        except MetadataConflict:
            continue
        except (NoSuchLedger, RemoteProtocolError) as error:
            raise ToolFailed(str(error)) from error
        break
    at.say(f"ledger {ledger_id}: what its bookies say they may have lost is given up")
    if known.metadata.state is not LedgerState.CLOSED:
        at.say("it is closed when its topic is loaded next, or by the check of its bookie")
    return 0

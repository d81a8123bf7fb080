"""BookKeeper: ledger storage, and the broker's ledger client (spec BK)."""

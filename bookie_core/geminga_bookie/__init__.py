"""BookKeeper: ledger storage, and the client that the broker writes ledgers with (spec BK)."""

"""BookKeeper's wire protocol: the client of a bookie, and the server of ours (spec BK-08)."""

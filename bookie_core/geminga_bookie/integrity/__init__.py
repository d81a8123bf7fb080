"""Ledgers of which a bookie may have lost entries, until other bookies have told (spec BK-02)."""

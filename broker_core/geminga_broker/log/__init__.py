"""Managed ledger and cursors: a topic as a chain of ledgers."""

"""BookKeeper's formats: digests of entries, ledger metadata, paths in the metadata store (spec
BK-12, BK-20).
"""

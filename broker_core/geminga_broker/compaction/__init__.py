"""Topic compaction: the latest message of each key, rewritten to a ledger of its own (BR-50)."""

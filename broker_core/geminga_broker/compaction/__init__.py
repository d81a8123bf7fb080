"""Topic compaction: copies the latest message of each key to a separate ledger (BR-50)."""

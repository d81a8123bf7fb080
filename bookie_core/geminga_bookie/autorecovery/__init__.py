"""Auto-recovery: auditor and replication workers (spec BK-26)."""

"""What brokers share: names, records, ownership, lookups, topics in memory (spec CL)."""

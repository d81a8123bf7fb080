"""Cluster state: names, records, ownership, lookups, topics in memory (spec CL)."""

"""Distributions that brokers and bookies count, for Prometheus (spec OP-05, BK-13)."""

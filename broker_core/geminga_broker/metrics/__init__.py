"""Prometheus metrics under Pulsar's names (spec OP-05)."""

"""The wire formats of Apache Pulsar and BookKeeper: bytes to events and back, no I/O (spec
PR).
"""

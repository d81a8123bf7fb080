"""Seeded simulation: the SDK and the broker in one Trio run, under virtual time, on a network, disk
and metadata store that fail as the seed says. `python -m compat_tests.sim` runs it.
"""

"""Helpers for tests; imported by no program."""

"""Producers, from a submitted message to its receipt."""

"""Checks of what programs give, and the options of consumers."""

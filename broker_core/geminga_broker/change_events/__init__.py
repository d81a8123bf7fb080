"""Policies of single topics in the system topic `__change_events` of their namespace."""

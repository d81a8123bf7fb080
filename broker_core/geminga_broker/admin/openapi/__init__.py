"""Describes the REST interface, read from the handlers of its routes (decision 41)."""

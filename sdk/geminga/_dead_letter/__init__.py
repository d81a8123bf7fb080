"""Retry letters, and dead letters for messages that are redelivered too often."""

"""Streams: the ends of micro-batches, their offsets, and what holds messages for a query."""

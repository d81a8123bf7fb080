"""Streams: the ends of micro-batches, their offsets, and the retention of unread messages."""

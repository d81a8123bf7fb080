"""Encoding and decoding of a topic's entries: batches, chunks, encryption."""

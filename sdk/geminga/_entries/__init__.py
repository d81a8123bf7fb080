"""Messages as they stand in a topic's entries: written, read, in chunks, encrypted."""

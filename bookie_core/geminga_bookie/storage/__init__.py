"""A bookie's storage on disk: journal, caches, entry logs, indexes, garbage collection."""

"""A bookie on its disks: journal, caches, entry logs, indexes, garbage collection."""

"""Whether the SQLite store's files are as they were written; what can be saved if they aren't."""

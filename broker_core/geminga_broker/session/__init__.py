"""One client connection: a table of small handlers."""

"""Client connections: a session for each, and a table of command handlers."""

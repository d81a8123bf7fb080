"""The keys of Apache's configuration files, and what becomes of each here (spec OP-07)."""

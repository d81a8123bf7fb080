"""The broker held against its own description (spec OP-03)."""

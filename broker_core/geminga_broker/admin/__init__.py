"""Admin REST by resource family (spec OP-03)."""

"""Tools for tests of what speaks the protocol; they need Hypothesis."""

"""Deliberate mistakes in the product, and the tests that must find them (`make mutants`)."""

"""Which broker serves which bundle: owners, leader, unloading, splitting (spec CL-03 to CL-06)."""

"""What load balancing reads from the metadata store and writes to it (spec CL-07, CL-08)."""

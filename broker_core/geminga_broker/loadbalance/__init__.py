"""Load balancing of a cluster: where bundles are placed, moved and split (spec CL-07 to CL-10)."""

"""A bookie as a process of a cluster: `geminga bookie`."""

"""Apache Pulsar itself as a peer: its jars, its standalone server, and Java programs of ours."""

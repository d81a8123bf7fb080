"""What a bookie counts, and how it is told to Prometheus (spec BK-13)."""

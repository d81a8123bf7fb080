"""``make soak``: hours of mixed load with restarts and faults (spec OP-13)."""

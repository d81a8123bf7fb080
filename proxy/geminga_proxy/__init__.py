"""One address before many brokers, ours or Apache's (spec PX-01 to PX-08)."""

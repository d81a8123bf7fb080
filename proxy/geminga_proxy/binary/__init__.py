"""The proxy's binary side: handshake, lookups, then a tunnel to one broker (spec PX-01, PX-02)."""

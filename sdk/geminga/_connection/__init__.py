"""How a client reaches its brokers: lookup, connections, authentication, retries."""

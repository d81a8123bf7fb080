"""A client's connections to its brokers: lookup, authentication, retries."""

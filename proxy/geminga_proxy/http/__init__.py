"""The proxy's HTTP side: a reverse proxy before the brokers' web services (spec PX-06)."""

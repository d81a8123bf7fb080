"""The web port: HTTP/1.1 and WebSockets for an ASGI application (spec OP-03, PX-24)."""

"""The WebSocket API (spec PX-09; Apache's pulsar-websocket)."""

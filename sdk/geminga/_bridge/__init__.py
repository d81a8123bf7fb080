"""The Trio client for asyncio programs and for programs without an event loop."""

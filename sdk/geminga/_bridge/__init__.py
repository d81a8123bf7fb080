"""The Trio client for programs without Trio: asyncio's and ordinary ones."""

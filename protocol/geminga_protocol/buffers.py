"""The type of "bytes, or a view of bytes"."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview

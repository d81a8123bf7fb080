"""Functions of the program that the client calls: interceptors, routers, listeners, callbacks."""

from __future__ import annotations

from typing import Final

FAILURES: Final = (Exception, SystemExit)
"""What such a function may raise without ending the client. It may run in the client's own thread,
where `sys.exit()` would end all clients of the process instead of the program."""

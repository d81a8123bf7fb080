"""The signals that ask a server for dumps (spec OP-09). Imports nothing that takes time."""

from __future__ import annotations

import signal

DUMP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)
"""For tasks, and for what is held; none where the system has no such signals."""


def ignore_dump_signals() -> None:
    """Call first in a program. Otherwise they end it while it imports, and while it stops: nobody
    serves them then. Main thread only.
    """
    for number in DUMP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)

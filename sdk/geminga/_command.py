"""The program `geminga`: a Ctrl-C while it still imports ends it without a traceback."""

from __future__ import annotations

import gc
import sys

from geminga_runtime.observing.dump_signals import ignore_dump_signals

INTERRUPTED = 130
"""The shell's exit code for SIGINT."""

YOUNG_OBJECTS = 50_000
"""New objects between two collections: what is imported stays, and to look through it for garbage
time and again takes 4 % of a server's start.
"""


def main() -> None:
    """Run the command line of this process. Signals for dumps don't end it while it imports or
    stops.
    """
    ignore_dump_signals()
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        from geminga.cli import main as run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run(prog_name="geminga")

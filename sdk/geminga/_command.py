"""The program `geminga`: a Ctrl-C while it still imports ends it without a traceback."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The shell's exit code for SIGINT."""


def main() -> None:
    """Run the command line of this process."""
    try:
        from geminga.cli import main as run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run(prog_name="geminga")

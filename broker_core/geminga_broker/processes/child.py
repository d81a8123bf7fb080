"""The program of a broker's process; `supervisor` starts it."""

from __future__ import annotations

import signal
import socket
import sys

from geminga_runtime.observing.dump_signals import ignore_dump_signals


def main() -> None:
    """The first argument is the file descriptor of the connection to the parent."""
    ignore_dump_signals()
    from geminga_runtime.process import die_with_parent

    die_with_parent()
    # Ctrl-C reaches all processes. While this one imports the parent ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from geminga_broker.processes.member import run_member

    sys.exit(run_member(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()

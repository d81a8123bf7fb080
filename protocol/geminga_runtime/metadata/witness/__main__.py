"""A witness of a process's end (decision 48): it ends the process's session with ZooKeeper.

`python -m geminga_runtime.metadata.witness HOSTS PID`: standard input brings a line for each
session, `ID PASSWORD TIMEOUT_S` with the password in hexadecimal, or an empty one if there is
none any more. The system closes the other end when the process is gone, however it went. Then the
last session is closed, so that its nodes go at once and not after its time-out.

Until then it is to take next to no memory: all that it doesn't need is imported at the end.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Wait for the end of the input. Signals of a stop are blocked by who starts it."""
    session: list[bytes] = []
    for line in sys.stdin.buffer:
        if line.endswith(b"\n"):
            session = line.split()
    if session:
        session_id, password, timeout_s = session
        end_session(
            sys.argv[1], int(session_id), bytes.fromhex(password.decode()), float(timeout_s)
        )


def end_session(hosts: str, session_id: int, password: bytes, timeout_s: float) -> None:
    """Close it, unless no server is reached before it has ended by itself."""
    import logging
    import math

    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.retry import KazooRetry

    logging.disable()
    retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0)
    client = KazooClient(
        hosts,
        timeout_s,
        client_id=(session_id, password),
        connection_retry=retry,
        randomize_hosts=True,
    )
    try:
        client.start(math.ceil(timeout_s))
        client.stop()
    except KazooTimeoutError:
        pass


if __name__ == "__main__":
    main()

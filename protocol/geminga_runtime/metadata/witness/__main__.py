"""A witness of a process's end (decision 48): it ends the process's session with ZooKeeper.

`__main__.py HOSTS PID`: standard input brings a line for each session, `ID PASSWORD TIMEOUT_S` with
the password in hexadecimal. The other end is closed by the process when it has closed the session,
as far as it knows, or by the system when it is gone, however it went. Then the last session is
closed, so that its nodes go at once and not after its time-out.

Until then it is to take next to no memory: all that it doesn't need is imported at the end. It is
started by its file, with nothing to be found but Python's own library: what it imports then is what
it would have been when it was started.
"""

from __future__ import annotations

import sys

ATTEMPT_S = 1.0
"""How long a server may take for an answer at first, while others may be there; later longer."""

ATTEMPT_MAX_S = 4.0
AGAIN_S = 0.05
"""After all servers were tried at first; later longer, too."""

AGAIN_MAX_S = 1.0
_CLOSE = -11
_EXPIRED = -112


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
    import math
    import random
    import signal
    import time

    # Whatever it waits for then, be it for the name of a server.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.alarm(math.ceil(timeout_s))
    servers = [host.rpartition(":")[::2] for host in hosts.split(",")]
    random.shuffle(servers)
    attempt_s, again_s = ATTEMPT_S, AGAIN_S
    while True:
        for host, port in servers:
            address = host.strip("[]"), int(port)
            if is_closed_by(address, attempt_s, session_id, password, timeout_s):
                return
        time.sleep(again_s)  # no server is there: all that this process is for is to ask again
        attempt_s, again_s = min(attempt_s * 2, ATTEMPT_MAX_S), min(again_s * 2, AGAIN_MAX_S)


def is_closed_by(
    address: tuple[str, int], attempt_s: float, session_id: int, password: bytes, timeout_s: float
) -> bool:
    """Resume the session at that server, and close it. Whether it has ended, now or before."""
    import socket
    import struct

    # ConnectRequest: version, last zxid seen, time-out, session, password, read-only.
    begin = struct.pack("!iqiqi", 0, 0, round(timeout_s * 1000), session_id, len(password))
    try:
        with socket.create_connection(address, attempt_s) as server:

            def ask(content: bytes) -> bytes:
                server.sendall(struct.pack("!i", len(content)) + content)
                (size,) = struct.unpack("!i", read(4))
                return read(size)

            def read(size: int) -> bytes:
                found = b""
                while len(found) < size:
                    more = server.recv(size - len(found))
                    if not more:
                        raise EOFError
                    found += more
                return found

            # ConnectResponse: version, time-out, session; none of a session that has ended.
            _, granted_ms, _ = struct.unpack_from("!iiq", ask(begin + password + b"\0"))
            if granted_ms <= 0:
                return True
            # RequestHeader: number, type. ReplyHeader: number, zxid, error.
            _, _, error = struct.unpack_from("!iqi", ask(struct.pack("!ii", 1, _CLOSE)))
            return error in (0, _EXPIRED)
    except (OSError, EOFError, ValueError, struct.error):
        return False


if __name__ == "__main__":
    main()

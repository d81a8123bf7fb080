"""Sockets that listen before anybody accepts, e.g. to be handed to another process."""

from __future__ import annotations

import socket

from geminga_runtime.errors import BindFailed

BACKLOG = 1024


def listen_on(host: str, port: int, key: str = "", *, backlog: int = BACKLOG) -> socket.socket:
    """A listening socket at the first of the host's addresses; connections wait in it. `key` is the
    configuration's for the port. Raises BindFailed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BindFailed.of(key, host, port, error) from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise BindFailed.of(key, host, port, error) from error
    return sock

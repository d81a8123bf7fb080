"""Connections and fork: a child process keeps none of its parent's open.

While any process holds a socket, the peer doesn't see that the others have closed it.
"""

from __future__ import annotations

import os
import weakref

import trio

_sockets: weakref.WeakSet[trio.socket.SocketType] = weakref.WeakSet()


def close_in_children(socket: trio.socket.SocketType) -> None:
    """Have each child that is forked from now on close its copy, if it is still open then."""
    _sockets.add(socket)


def _after_fork() -> None:
    for each in list(_sockets):
        # Detached, not closed by Trio: the child's copy of its loop shares the kernel's events with
        # the parent, and would take the parent's registration away. Closing a copy sends nothing,
        # by TLS neither.
        fd = each.detach()
        if fd >= 0:
            os.close(fd)
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

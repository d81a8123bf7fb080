"""What the kernel is handed in one scatter-gather call. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from geminga_protocol.buffers import Buffer

SMALL_BUFFER_BYTES = 4096
"""Buffers under this are cheaper to join than to hand to the kernel one by one."""

JOIN_BUFFERS_MAX = 256
IOV_MAX = 1024
"""The kernel's limit of buffers a call (UIO_MAXIOV)."""
SEND_BYTES_MAX = 256 * 1024
"""Bytes a call, which the kernel copies while nothing else runs; then all others have their turn
(spec BR-40).
"""


def coalesce(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes with runs of small buffers joined; large buffers stay the objects they are."""
    if len(buffers) == 1:
        return list(buffers)
    if max(map(len, buffers), default=0) < SMALL_BUFFER_BYTES:
        if len(buffers) <= JOIN_BUFFERS_MAX:
            return [b"".join(buffers)]
        starts = range(0, len(buffers), JOIN_BUFFERS_MAX)
        return [b"".join(buffers[start : start + JOIN_BUFFERS_MAX]) for start in starts]
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < SMALL_BUFFER_BYTES:
            run.append(buffer)
            continue
        if run:
            joined.append(run[0] if len(run) == 1 else b"".join(run))
            run = []
        joined.append(buffer)
    if run:
        joined.append(run[0] if len(run) == 1 else b"".join(run))
    return joined


def cap(window: list[Buffer]) -> bool:
    """Leave in it at most SEND_BYTES_MAX; answers whether there was more."""
    left = SEND_BYTES_MAX
    for at, buffer in enumerate(window):
        left -= len(buffer)
        if left < 0:
            window[at:] = [memoryview(buffer)[:left]]
            return True
    return False

"""Lines of standard input, as they come."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import trio

LINE_BYTES_MAX = 1 << 26
"""A line that is longer ends the command: no message is that large."""


async def given_or_read(payloads: Sequence[bytes], times: int) -> AsyncGenerator[bytes]:
    """These payloads so often; if there are none, each line of standard input. Raises
    InvalidArgument as `lines_of_input`.
    """
    if not payloads:
        async for line in lines_of_input():
            yield line
    for _ in range(times):
        for payload in payloads:
            yield payload


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line without its end, read in a thread; an empty one is an empty message.

    Raises InvalidArgument for a line above LINE_BYTES_MAX.
    """
    from geminga.errors import InvalidArgument

    while True:
        line = await trio.to_thread.run_sync(
            sys.stdin.buffer.readline, LINE_BYTES_MAX + 1, abandon_on_cancel=True
        )
        if not line:
            return
        if len(line) > LINE_BYTES_MAX:
            raise InvalidArgument(f"a line of standard input is longer than {LINE_BYTES_MAX} bytes")
        yield line.removesuffix(b"\n").removesuffix(b"\r")

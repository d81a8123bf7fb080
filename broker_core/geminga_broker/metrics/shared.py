"""A page that costs something to make, for many who ask (spec OP-05)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class _Making:
    """One time that the page is made."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.page: bytes | None = None


class SharedPage:
    """Made once for all who ask while it is made; never kept for later."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: _Making | None = None

    async def get(self) -> bytes:
        """The page of now. Raises what its making raises, to the one who asked first."""
        while (making := self._making) is not None:
            await making.done.wait()
            if making.page is not None:
                return making.page
            # Whoever made it left or failed: it is made again.
        making = self._making = _Making()
        try:
            # Those who ask in the same turn have theirs of it too.
            await trio.lowlevel.checkpoint()
            making.page = await self._make()
            return making.page
        finally:
            self._making = None
            making.done.set()

"""Fresh credentials that pass through a tunnel (spec PX-04, PX-20; PIP-30, PIP-55).

With `forwardAuthorizationCredentials` a broker has the client's credentials, and asks for fresh
ones in the tunnel. A broker that ignores them (`authenticateOriginalAuthData=false`) never asks,
and the tunnel would outlive the credentials. So from shortly before the expiry, and not earlier,
the proxy searches the tunnel for the client's AUTH_RESPONSE, and ends the tunnel if no valid one
came in time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from google.protobuf.message import DecodeError

from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_proxy.relay import Direction
from geminga_runtime.auth.api import AuthenticationFailed, Identity, Peer
from geminga_runtime.auth.service import Authenticator

COMMAND_BYTES_MAX = 0x1FFFF
"""Tokens are at most 64 KiB."""
FOUND_PER_READ_MAX = 64
REFRESH_CHECKS = 2
"""A broker asks at its first check after the expiry; the client may answer until the next one."""
CLOCK_CHECK_S = 60.0
CHECKS_PAUSE_S = 0.05
"""Pause after invalid credentials, which bounds the time spent on checking them."""
_HEAD_BYTES = 10
_HEAD = re.compile(
    rb"\x00[\x00-\x02]..\x00[\x00\x01]..\x08" + bytes([BaseCommand.AUTH_RESPONSE]), re.DOTALL
)
"""Two lengths, and the first field of the command. A message that holds the same bytes does no
harm: only a valid token counts, and its holder is authenticated.
"""


class ResponseFinder:
    """Finds AUTH_RESPONSE frames in bytes that need not begin at a frame. Pure."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Method and data of each AUTH_RESPONSE that is complete."""
        found: list[tuple[str, bytes]] = []
        data = self._rest + data
        self._rest = data[-(_HEAD_BYTES - 1) :]
        for count, match in enumerate(_HEAD.finditer(data)):
            if count == FOUND_PER_READ_MAX:
                break
            start = match.start()
            size = int.from_bytes(data[start + 4 : start + 8], "big")
            if int.from_bytes(data[start : start + 4], "big") != size + 4:
                continue
            end = start + 8 + size
            if end > len(data):
                self._rest = data[start:]
                break
            try:
                command = BaseCommand.FromString(data[start + 8 : end])
            except DecodeError:
                continue
            response = command.authResponse.response
            found.append((response.auth_method_name, response.auth_data))
        return found


class Renewal:
    """Watches the expiry of one tunnel's credentials."""

    def __init__(
        self,
        authenticator: Authenticator,
        peer: Peer,
        method: str,
        identity: Identity,
        refresh_s: float,
    ) -> None:
        """`refresh_s` is the interval of brokers' checks for expired credentials."""
        self._authenticator = authenticator
        self._peer = peer
        self._method = method
        self._identity = identity
        self._refresh_s = refresh_s
        self._shown: bytes | None = None
        self._has_shown = trio.Event()

    async def wait_expired(self, up: Direction) -> None:
        """Return when the client's credentials have expired; never if fresh ones don't expire. `up`
        is the direction from the client.
        """
        while (expires_at_s := self._identity.expires_at_s) is not None:
            await sleep_until(expires_at_s - self._refresh_s)
            with self._searching(up):
                fresh = await self._fresh(expires_at_s + REFRESH_CHECKS * self._refresh_s)
            if fresh is None:
                return
            self._identity = fresh
        await trio.sleep_forever()

    @contextmanager
    def _searching(self, direction: Direction) -> Iterator[None]:
        before, finder = direction.on_data, ResponseFinder()

        def search(data: bytes) -> None:
            if before is not None:
                before(data)
            for method, shown in finder.feed(data):
                if method in ("", self._method):
                    self._shown = shown
                    self._has_shown.set()

        direction.on_data = search
        try:
            yield
        finally:
            direction.on_data = before

    async def _fresh(self, until_s: float) -> Identity | None:
        """The identity in the client's fresh credentials; None if none came before `until_s`."""
        while (left_s := until_s - time.time()) > 0:
            with trio.move_on_after(min(left_s, CLOCK_CHECK_S)):
                await self._has_shown.wait()
                self._has_shown = trio.Event()
                found = await self._checked(self._shown or b"")
                if found is not None:
                    return found
                await trio.sleep(CHECKS_PAUSE_S)
        return None

    async def _checked(self, data: bytes) -> Identity | None:
        try:
            found = await self._authenticator.begin(self._method, self._peer).step(data)
        except AuthenticationFailed:
            return None
        if not isinstance(found, Identity) or found.role != self._identity.role:
            return None
        known_s, ends_s = self._identity.expires_at_s, found.expires_at_s
        is_fresh = known_s is None or ends_s is None or ends_s > known_s
        return found if is_fresh else None


async def sleep_until(at_s: float) -> None:
    """Sleep until that time by the wall clock, which may be adjusted meanwhile."""
    while (left_s := at_s - time.time()) > 0:  # noqa: ASYNC110
        await trio.sleep(min(left_s, CLOCK_CHECK_S))

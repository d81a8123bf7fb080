"""Fresh proofs that pass through a tunnel (spec PX-04, PX-20; PIP-30, PIP-55).

With `forwardAuthorizationCredentials` a broker has the client's credentials, and asks for fresh
ones in the tunnel. One that doesn't look at them (`authenticateOriginalAuthData=false`) never asks,
and the tunnel would outlive the proof. So the proxy looks for the client's AUTH_RESPONSE, from
shortly before the proof expires, and ends the tunnel if no good one came in time. Nothing is looked
at before.
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
"""A broker asks at its next look after the expiry, and gives the client until the one after it."""
CLOCK_CHECK_S = 60.0
CHECKS_PAUSE_S = 0.05
"""Proofs that are none cost their sender's tunnel no more of the proxy's time than this allows."""
_HEAD_BYTES = 10
_HEAD = re.compile(
    rb"\x00[\x00-\x02]..\x00[\x00\x01]..\x08" + bytes([BaseCommand.AUTH_RESPONSE]), re.DOTALL
)
"""Two lengths, and the first field of the command. A message may hold the same bytes: that does no
harm, as only a good token counts, and whoever has one has proved himself.
"""


class ResponseFinder:
    """Finds AUTH_RESPONSE frames in bytes that are no whole frames. Pure."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Method and data of each that is whole now."""
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
    """Watches one tunnel's proof."""

    def __init__(
        self,
        authenticator: Authenticator,
        peer: Peer,
        method: str,
        identity: Identity,
        refresh_s: float,
    ) -> None:
        """`refresh_s` is the interval in which brokers look for what has expired."""
        self._authenticator = authenticator
        self._peer = peer
        self._method = method
        self._identity = identity
        self._refresh_s = refresh_s
        self._shown: bytes | None = None
        self._has_shown = trio.Event()

    async def wait_expired(self, up: Direction) -> None:
        """Return when the client's proof is over; `up` brings what the client sends. Never, if it
        shows one that doesn't expire.
        """
        while (expires_at_s := self._identity.expires_at_s) is not None:
            await sleep_until(expires_at_s - self._refresh_s)
            with self._looking_at(up):
                fresh = await self._fresh(expires_at_s + REFRESH_CHECKS * self._refresh_s)
            if fresh is None:
                return
            self._identity = fresh
        await trio.sleep_forever()

    @contextmanager
    def _looking_at(self, direction: Direction) -> Iterator[None]:
        before, finder = direction.see, ResponseFinder()

        def see(data: bytes) -> None:
            if before is not None:
                before(data)
            for method, shown in finder.feed(data):
                if method in ("", self._method):
                    self._shown = shown
                    self._has_shown.set()

        direction.see = see
        try:
            yield
        finally:
            direction.see = before

    async def _fresh(self, until_s: float) -> Identity | None:
        """The client's next good proof, None if there is none until then."""
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
    """Until that time by the wall clock, which may be set."""
    while (left_s := at_s - time.time()) > 0:  # noqa: ASYNC110
        await trio.sleep(min(left_s, CLOCK_CHECK_S))

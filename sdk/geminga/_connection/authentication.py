"""The base of all kinds of authentication."""

from __future__ import annotations

import trio

from geminga.errors import InvalidArgumentError


class Authentication:
    """Base of all kinds; a kind of the program's own overrides `data` and `http_headers`.

    `method_name` is the name by which the broker knows the kind.
    """

    def __init__(self, method_name: str) -> None:
        self.method_name = method_name

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    async def data(self) -> bytes:
        """What CONNECT and AUTH_RESPONSE carry. Raises AuthenticationError."""
        await trio.lowlevel.checkpoint()
        return b""

    async def renewed(self) -> bytes:
        """What AUTH_RESPONSE carries: the broker has asked, so what it knows may have expired. Like
        `data`, unless that keeps something. Raises AuthenticationError.
        """
        return await self.data()

    @property
    def tls_certificate(self) -> tuple[str, str] | None:
        """Files of a certificate and its key, to be shown in TLS."""
        return None

    async def http_headers(self) -> dict[str, str]:
        """The same for lookups over HTTP. Raises AuthenticationError."""
        await trio.lowlevel.checkpoint()
        return {}


def check_authentication(who: object) -> None:
    """Raises InvalidArgumentError unless it is an Authentication, or None."""
    if who is not None and not isinstance(who, Authentication):
        # Not shown as it is: it may well be the secret itself.
        kind = type(who).__name__
        raise InvalidArgumentError(f"authentication must be an Authentication, not {kind}")

"""The base of the authentication methods."""

from __future__ import annotations

from geminga.errors import InvalidArgumentError


class Authentication:
    """Base of the methods; a method by the program overrides `data` and `http_headers`.

    `method_name` is the broker's name of the method.
    """

    def __init__(self, method_name: str) -> None:
        self.method_name = method_name

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    async def data(self) -> bytes:
        """The auth data of CONNECT and AUTH_RESPONSE. Raises AuthenticationError."""
        await _turn()
        return b""

    async def renewed(self) -> bytes:
        """The auth data of AUTH_RESPONSE: after the broker's challenge, cached data may have
        expired. By default `data`. Raises AuthenticationError.
        """
        return await self.data()

    @property
    def tls_certificate(self) -> tuple[str, str] | None:
        """Files of a client certificate and its key, or None."""
        return None

    async def http_headers(self) -> dict[str, str]:
        """Headers for lookups over HTTP. Raises AuthenticationError."""
        await _turn()
        return {}


def check_authentication(who: object) -> None:
    """Raises InvalidArgumentError unless it is an Authentication or None."""
    if who is not None and not isinstance(who, Authentication):
        # The value is not shown: it may be the secret itself.
        kind = type(who).__name__
        raise InvalidArgumentError(f"authentication must be an Authentication, not {kind}")


async def _turn() -> None:
    """A turn of Trio's loop; imported late, as commands read options without it."""
    import trio

    await trio.lowlevel.checkpoint()

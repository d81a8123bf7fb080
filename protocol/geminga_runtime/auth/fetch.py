"""GET of a URL over HTTP or HTTPS, for the keys of issuers."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import trio

from geminga_runtime.errors import ConnectionLost
from geminga_runtime.http_get import BadHttpAnswer, get
from geminga_runtime.settings import ConfigError
from geminga_runtime.stream import FramedStream


def fetcher(trust_certs_file_path: str, timeout_s: float) -> Callable[[str], Awaitable[bytes]]:
    """A function that returns a URL's body. Raises OSError.

    Trusts the system's authorities when no file is named. Raises ConfigError when it can't be read.
    """
    try:
        context = ssl.create_default_context(cafile=trust_certs_file_path or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{trust_certs_file_path} can't be read: {error}") from None

    async def fetch(url: str) -> bytes:
        try:
            with trio.fail_after(timeout_s):
                return await _fetch(url, context)
        except trio.TooSlowError:
            raise OSError(f"{url} did not answer within {timeout_s:g} s") from None
        except (ConnectionLost, BadHttpAnswer, trio.BrokenResourceError, ssl.SSLError) as error:
            raise OSError(f"{url}: {error}") from error

    return fetch


async def _fetch(url: str, context: ssl.SSLContext) -> bytes:
    parts = urlsplit(url)
    host = parts.hostname or ""
    stream: trio.abc.Stream
    if parts.scheme == "https":
        stream = await trio.open_ssl_over_tcp_stream(host, parts.port or 443, ssl_context=context)
    elif parts.scheme == "http":
        stream = await trio.open_tcp_stream(host, parts.port or 80)
    else:
        raise OSError(f"{url} is neither http nor https")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    answer = await get(FramedStream(stream, name=parts.netloc), parts.netloc, target, {})
    if answer.status != 200:
        raise OSError(f"{url} answered {answer.status}")
    return answer.body

"""Requests of a command, by blocking sockets: Trio takes longer to import than a call takes.

Where requests go is decided by `Exchange`, as for the admin client.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from geminga._admin.errors import RequestTimeoutError, UnreachableError
from geminga._admin.exchange import Exchange, lost
from geminga.errors import GemingaError, InvalidArgumentError, TlsError
from geminga_runtime.http.answers import (
    METHODS_WITH_BODY,
    AnswerReader,
    BadHttpAnswer,
    HttpAnswer,
    request_head,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from geminga._admin.options import AdminOptions
    from geminga._admin.requests import Request
    from geminga._connection.service_url import Address

RECEIVE_BYTES = 64 * 1024


class PlainHttp:
    """Sends requests, each over a connection of its own."""

    def __init__(
        self,
        addresses: tuple[Address, ...],
        options: AdminOptions,
        credentials: Mapping[str, str],
    ) -> None:
        """`credentials` are headers."""
        self._addresses = addresses
        self._options = options
        self._credentials = credentials
        self._at = 0

    def ask(self, request: Request) -> HttpAnswer:
        """As `Transport.ask` of the admin client."""
        until_s = time.monotonic() + self._options.request_timeout_s
        exchange = Exchange(request, self._addresses, self._at, self._options)
        try:
            while True:
                address = exchange.address
                try:
                    connection = self._connect(address, until_s)
                except OSError as error:
                    exchange.failed(_not_connected(address, error), may_have_arrived=False)
                    continue
                try:
                    with connection:
                        answer = self._exchange(connection, exchange, until_s)
                except TimeoutError:
                    raise RequestTimeoutError(
                        f"{request.method} {request.path}: no answer of {address.url} within "
                        f"{self._options.request_timeout_s:g} s"
                    ) from None
                except (OSError, BadHttpAnswer) as error:
                    exchange.failed(lost(address, error), may_have_arrived=True)
                    continue
                if exchange.answered(answer):
                    return answer
        finally:
            self._at = exchange.at

    def _connect(self, address: Address, until_s: float) -> socket.socket:
        timeout_s = min(self._options.connection_timeout_s, max(0.001, until_s - time.monotonic()))
        plain = socket.create_connection(address[:2], timeout_s)
        if not address.tls:
            return plain
        from geminga_runtime.tls import TlsConfigError

        try:
            context = self._options.client_tls(None).context()
            return context.wrap_socket(plain, server_hostname=address.host)
        except TlsConfigError as error:
            plain.close()
            raise InvalidArgumentError(str(error)) from error
        except BaseException:
            plain.close()
            raise

    def _exchange(
        self, connection: socket.socket, exchange: Exchange, until_s: float
    ) -> HttpAnswer:
        request = exchange.request
        headers = dict(self._credentials) if exchange.shows_credentials else {}
        body = request.body or b""
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if body or request.method in METHODS_WITH_BODY:
            headers["Content-Length"] = str(len(body))
        authority = exchange.address.authority
        head = request_head(request.method, authority, exchange.target, headers)
        connection.settimeout(max(0.001, until_s - time.monotonic()))
        connection.sendall(head + body)
        reader = AnswerReader(self._options.answer_bytes_max)
        while not reader.is_whole:
            connection.settimeout(max(0.001, until_s - time.monotonic()))
            data = connection.recv(RECEIVE_BYTES)
            if data:
                reader.feed(data)
            else:
                reader.end()
        return reader.answer


def _not_connected(address: Address, error: OSError) -> GemingaError:
    if address.tls:
        import ssl

        from geminga_runtime.tls import tls_reason

        if isinstance(error, ssl.SSLError):
            return TlsError(f"{address.authority}: {tls_reason(error)}")
    reason = error.strerror or str(error) or type(error).__name__
    return UnreachableError(f"{address.authority}: {reason}")

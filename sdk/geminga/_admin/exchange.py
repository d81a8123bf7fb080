"""One call of the admin REST as decisions, without I/O: to which host its request goes next,
whether with credentials, and what the answer means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from geminga._admin.errors import AdminError, NotAuthorizedError, UnreachableError, of_answer
from geminga._connection.service_url import Address, is_trusted, parse
from geminga.errors import GemingaError, InvalidServiceUrlError
from geminga_runtime.http.answers import REPEATABLE, HttpAnswer

if TYPE_CHECKING:
    from geminga._admin.options import AdminOptions
    from geminga._admin.requests import Request

REDIRECTS = frozenset({301, 302, 303, 307, 308})
SAME_METHOD = frozenset({307, 308})
"""Redirects that any method follows; the others change it, so that only GET follows them."""
NOT_SHOWN = (
    "a redirect leads there, and credentials follow it only to the service URL's hosts and "
    "trusted_broker_hosts"
)


def parse_admin_url(service_url: str, what: str = "service_url") -> tuple[Address, ...]:
    """The addresses of `http://host:port[,host:port...]`. Raises InvalidServiceUrlError, which says
    `what` had it.
    """
    if isinstance(service_url, str) and service_url.startswith(("pulsar://", "pulsar+ssl://")):
        raise InvalidServiceUrlError(
            f"the admin client needs the web service's http:// or https:// URL, not {service_url!r}"
        )
    if isinstance(service_url, str) and not service_url.startswith(("http://", "https://")):
        raise InvalidServiceUrlError(
            f"{what} must begin with http:// or https://, not {service_url!r}"
        )
    return parse(service_url, what)


class Exchange:
    """Begins at the host `at` of the service URL; if that is unreachable, goes on to the next."""

    def __init__(
        self, request: Request, addresses: Sequence[Address], at: int, options: AdminOptions
    ) -> None:
        self.request = request
        self._addresses = addresses
        self._options = options
        self.at = at
        """The host of the service URL that it is at."""
        self._tried = 0
        self._failure: GemingaError | None = None
        self._begin()

    def _begin(self) -> None:
        self.address = self._addresses[self.at]
        self.target = self.request.target
        self.shows_credentials = True
        self._redirects = 0

    def failed(self, error: GemingaError, *, may_have_arrived: bool) -> None:
        """There was no answer: go on to the next host. Raises the first error if there is none, and
        the error itself if the request must not be repeated.
        """
        if may_have_arrived and self.request.method not in REPEATABLE:
            raise error
        self._failure = self._failure or error
        self._tried += 1
        self.at = (self.at + 1) % len(self._addresses)
        if self._tried == len(self._addresses):
            raise self._failure
        self._begin()

    def answered(self, answer: HttpAnswer) -> bool:
        """Whether the answer is the call's; otherwise the request goes to another address. Raises
        AdminError by the status.
        """
        if answer.status in REDIRECTS:
            self._redirect(answer)
            return False
        if 200 <= answer.status < 300:
            return True
        asked = f"{self.request.method} {self.address.url}{self.target}"
        error = of_answer(answer.status, answer.body, asked)
        if isinstance(error, NotAuthorizedError) and not self.shows_credentials:
            error.args = (f"{error.args[0]}; {NOT_SHOWN}",)
        raise error

    def _redirect(self, answer: HttpAnswer) -> None:
        status, url = answer.status, self.address.url
        if self.request.method not in ("GET", "HEAD") and status not in SAME_METHOD:
            raise _refused(status, f"{url}: a redirect for GET only")
        if self._redirects == self._options.redirects_max:
            raise _refused(status, f"{url}: redirected too often")
        self._redirects += 1
        location = answer.headers.get("location", "")
        try:
            parts = urlsplit(urljoin(f"{url}{self.target}", location))
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _refused(status, f"{url}: the redirect has no valid URL") from error
        if host is None or parts.scheme not in ("http", "https") or not location:
            raise _refused(status, f"{url}: the redirect has no valid URL")
        tls = parts.scheme == "https"
        if self.address.tls and not tls:
            raise _refused(status, f"{url}: a redirect from https to http, which is refused")
        to = Address(host, port or (443 if tls else 80), tls, http=True)
        # Never again once they were withheld: who sent the request on may have changed its path.
        self.shows_credentials = self.shows_credentials and self._follows(to)
        self.address = to
        self.target = parts.path + (f"?{parts.query}" if parts.query else "")

    def _follows(self, to: Address) -> bool:
        """Whether credentials go along to a host that the present one names."""
        if any(to[:3] == each[:3] for each in self._addresses):
            return True
        if self._options.trusted_broker_hosts:
            return is_trusted(to, self._options.trusted_broker_hosts)
        # The present one has proved its name, and the next one must prove its own.
        options = self._options
        verified = options.tls_validate_hostname and not options.tls_allow_insecure_connection
        return self.address.tls and to.tls and verified


def lost(address: Address, error: Exception) -> UnreachableError:
    """The error of a connection that was lost."""
    return UnreachableError(f"{address.url}: {error}")


def _refused(status: int, text: str) -> AdminError:
    error = AdminError(text, code=f"Http{status}")
    error.status = status
    return error

"""Access to one cluster: its addresses, authentication and TLS."""

from __future__ import annotations

from geminga._connection.service_url import Address
from geminga._connection.tls_options import OPTION_NAMES, TlsOptions
from geminga.auth import Authentication
from geminga.errors import InvalidArgumentError
from geminga_runtime.tls import TlsConfigError, TlsContexts


class Access:
    """Addresses, authentication and TLS of a cluster. Raises InvalidArgumentError for unusable
    certificates with a `pulsar+ssl://` or `https://` address.
    """

    def __init__(
        self,
        addresses: tuple[Address, ...],
        authentication: Authentication | None,
        tls: TlsOptions,
    ) -> None:
        self.addresses = addresses
        self.authentication = authentication
        shown = None if authentication is None else authentication.tls_certificate
        self._options = tls.client_tls(shown)
        self._tls: TlsContexts | None = None
        if any(address.tls for address in addresses):
            self._tls = self._contexts()

    @property
    def tls(self) -> TlsContexts:
        """TLS contexts. Their files are checked for changes at each connection."""
        if self._tls is None:
            self._tls = self._contexts()
        return self._tls

    def _contexts(self) -> TlsContexts:
        try:
            return TlsContexts(self._options, refresh_check_s=0)
        except TlsConfigError as error:
            name = OPTION_NAMES.get(error.field, error.field)
            raise InvalidArgumentError(f"{name}: {error.reason}") from error

"""Client certificates (spec PX-21; Apache's `AuthenticationProviderTls`): the role is the subject's
common name. The certificate itself was verified by the TLS handshake.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from geminga_runtime.auth.api import AuthenticationFailed, Identity, Peer
from geminga_runtime.auth.settings import AuthSettings

METHOD = "tls"


class TlsProvider:
    """Reads the role out of a connection's verified client certificate."""

    method = METHOD
    name = "AuthenticationProviderTls"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    @classmethod
    def from_settings(cls, settings: AuthSettings) -> TlsProvider:
        """Uses no setting."""
        return cls()

    def begin(self, peer: Peer) -> _Certificate:
        """Bound to the peer's certificate, whatever data the peer sends."""
        return _Certificate(peer.certificate, self._clock)


class _Certificate:
    def __init__(self, certificate: bytes | None, clock: Callable[[], float]) -> None:
        self._certificate = certificate
        self._clock = clock

    async def step(self, data: bytes) -> Identity:
        if self._certificate is None:
            raise AuthenticationFailed("no client certificate", "no_certificate")
        from cryptography import x509  # not every server has this provider
        from cryptography.x509.oid import NameOID

        try:
            certificate = x509.load_der_x509_certificate(self._certificate)
            names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except ValueError:
            raise AuthenticationFailed("client certificate can't be parsed") from None
        if certificate.not_valid_after_utc.timestamp() <= self._clock():
            raise AuthenticationFailed("the client certificate has expired", "expired_certificate")
        # The last of several names, as Apache's AuthenticationProviderTls.
        if not names or not isinstance(names[-1].value, str) or not names[-1].value:
            raise AuthenticationFailed("client certificate has no common name")
        return Identity(names[-1].value, METHOD)

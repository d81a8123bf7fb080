"""TLS options of a client and of clusters to fail over to (spec SDK-43)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga._options.checks import booleans, text_or_none
from geminga.errors import InvalidArgumentError

if TYPE_CHECKING:
    from geminga_runtime.tls import ClientTls


@dataclass(frozen=True, kw_only=True)
class TlsOptions:
    """Options of TLS with `pulsar+ssl://` and `https://` addresses.

    Without `tls_trust_certs_file_path` the system's authorities are trusted. Host names are
    verified unless `tls_validate_hostname` is False; with `tls_allow_insecure_connection` nothing
    is verified, which allows impersonation. A client certificate, with its key, is sent if the
    broker requests one; AuthenticationTls has its own. All files are PEM and are reread when they
    change. `tls_protocols` are TLSv1.2 and TLSv1.3, both by default; `tls_ciphers` have names of
    OpenSSL or Java, and don't apply to TLS 1.3.
    """

    tls_trust_certs_file_path: str | None = None
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = True
    tls_certificate_file_path: str | None = None
    tls_private_key_file_path: str | None = None
    tls_protocols: Sequence[str] = ()
    tls_ciphers: Sequence[str] = ()

    def check_tls(self) -> None:
        """Raises InvalidArgumentError, naming the option; files are read later."""
        text_or_none(self, "tls_trust_certs_file_path")
        text_or_none(self, "tls_certificate_file_path", "tls_private_key_file_path")
        booleans(self, "tls_allow_insecure_connection", "tls_validate_hostname")
        if (self.tls_certificate_file_path is None) != (self.tls_private_key_file_path is None):
            raise InvalidArgumentError(
                "tls_certificate_file_path, tls_private_key_file_path: one needs the other"
            )
        for name in ("tls_protocols", "tls_ciphers"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise InvalidArgumentError(f"{name} must be a list of texts, not {value!r}")
        if self.tls_protocols:
            from geminga_runtime.tls import PROTOCOLS

            for name in self.tls_protocols:
                if name not in PROTOCOLS:
                    raise InvalidArgumentError(
                        f"tls_protocols: {name!r} is none of {', '.join(PROTOCOLS)}"
                    )

    def client_tls(self, certificate: tuple[str, str] | None) -> ClientTls:
        """The runtime's form; `certificate` (and key) overrides the options' own."""
        from geminga_runtime.tls import ClientTls

        own = (self.tls_certificate_file_path or "", self.tls_private_key_file_path or "")
        shown, key = certificate or own
        return ClientTls(
            certificate_file=shown,
            key_file=key,
            trust_certs_file=self.tls_trust_certs_file_path or "",
            allow_insecure=self.tls_allow_insecure_connection,
            protocols=tuple(self.tls_protocols),
            ciphers=tuple(self.tls_ciphers),
            validate_hostname=self.tls_validate_hostname,
        )


OPTION_NAMES = {
    "certificate_file": "tls_certificate_file_path",
    "key_file": "tls_private_key_file_path",
    "trust_certs_file": "tls_trust_certs_file_path",
    "protocols": "tls_protocols",
    "ciphers": "tls_ciphers",
}
"""The runtime's names of options, in its errors, and ours."""

"""Settings of TLS listeners under Apache's keys (spec PX-25); broker and proxy add their ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from geminga_runtime.settings import ConfigError, listed, setting
from geminga_runtime.tls import ServerTls, TlsConfigError, TlsContexts

NO_PORT = -1
"""No listener."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files, protocols and ciphers. Without a TLS port no file is read."""

    certificate_file: str = setting("tlsCertificateFilePath", "")
    key_file: str = setting("tlsKeyFilePath", "")
    trust_certs_file: str = setting("tlsTrustCertsFilePath", "")
    allow_insecure: bool = setting("tlsAllowInsecureConnection", False)
    require_client_certificate: bool = setting("tlsRequireTrustedClientCertOnConnect", False)
    protocols: str = setting("tlsProtocols", "")
    ciphers: str = setting("tlsCiphers", "")
    web_protocols: str = setting("webServiceTlsProtocols", "")
    web_ciphers: str = setting("webServiceTlsCiphers", "")
    """Of the web's port; without them those of both ports count."""
    refresh_check_s: int = setting("tlsCertRefreshCheckDurationSec", 300)

    def web_contexts(self) -> TlsContexts:
        """For the web's listener. Raises ConfigError."""
        protocols, ciphers = self.web_protocols or self.protocols, self.web_ciphers or self.ciphers
        keys = {
            "protocols": "webServiceTlsProtocols" if self.web_protocols else "tlsProtocols",
            "ciphers": "webServiceTlsCiphers" if self.web_ciphers else "tlsCiphers",
        }
        return replace(self, protocols=protocols, ciphers=ciphers)._contexts(keys)

    def contexts(self) -> TlsContexts:
        """For the binary protocol's listener. Raises ConfigError."""
        return self._contexts({})

    def check(self) -> None:
        """Raises ConfigError if one of both can't be made."""
        self.contexts()
        self.web_contexts()

    def _contexts(self, keys: Mapping[str, str]) -> TlsContexts:
        options = ServerTls(
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            trust_certs_file=self.trust_certs_file,
            allow_insecure=self.allow_insecure,
            protocols=listed(self.protocols),
            ciphers=listed(self.ciphers),
            require_client_certificate=self.require_client_certificate,
        )
        try:
            return TlsContexts(options, refresh_check_s=self.refresh_check_s)
        except TlsConfigError as error:
            known = {**{each.name: each.metadata["key"] for each in fields(self)}, **keys}
            key = known[error.field]
            if error.field == "require_client_certificate":
                key += " with tlsAllowInsecureConnection"
            raise ConfigError(f"{key}: {error.reason}") from error


def check_ports_differ(ports: Mapping[str, int]) -> None:
    """Raises ConfigError if two keys have the same port. 0 is any free one, NO_PORT is none."""
    keys: dict[int, str] = {}
    for key, port in ports.items():
        if port > 0 and (other := keys.setdefault(port, key)) != key:
            raise ConfigError(f"{other} and {key} are both {port}: each needs a port of its own")

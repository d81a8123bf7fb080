"""Settings of TLS listeners under Apache's keys (spec PX-25); broker and proxy add their ports."""

from __future__ import annotations

from dataclasses import dataclass, fields

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
    refresh_check_s: int = setting("tlsCertRefreshCheckDurationSec", 300)

    def contexts(self) -> TlsContexts:
        """For a listener. Raises ConfigError."""
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
            key = {each.name: each.metadata["key"] for each in fields(self)}[error.field]
            if error.field == "require_client_certificate":
                key += " with tlsAllowInsecureConnection"
            raise ConfigError(f"{key}: {error.reason}") from error

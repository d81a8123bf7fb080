"""How a broker speaks to the other brokers of its cluster, under Apache's keys (spec PX-23)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.auth.own import OwnCredentials, own_credentials
from geminga_runtime.settings import ConfigError, setting
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The broker's own credentials, and TLS to other brokers. Without `tls` no file is read."""

    auth_plugin: str = setting("brokerClientAuthenticationPlugin", "")
    auth_parameters: str = setting("brokerClientAuthenticationParameters", "", secret=True)
    tls: bool = setting("brokerClientTlsEnabled", False)
    trust_certs_file: str = setting("brokerClientTrustCertsFilePath", "")
    certificate_file: str = setting("brokerClientCertificateFilePath", "")
    key_file: str = setting("brokerClientKeyFilePath", "")
    verify_hostname: bool = setting("tlsHostnameVerificationEnabled", True)
    timeout_s: int = setting("metadataStoreOperationTimeoutSeconds", 30, at_least=1)
    """Apache's bound of a call, too: most of a call's time is the metadata store's."""

    def credentials(self) -> OwnCredentials:
        """Raises ConfigError."""
        return own_credentials(self.auth_plugin, self.auth_parameters)

    def contexts(self, refresh_check_s: float) -> TlsContexts | None:
        """None without TLS. Raises ConfigError."""
        if not self.tls:
            return None
        own = self.credentials()
        options = ClientTls(
            certificate_file=own.certificate_file or self.certificate_file,
            key_file=own.key_file or self.key_file,
            trust_certs_file=self.trust_certs_file,
            validate_hostname=self.verify_hostname,
        )
        try:
            return TlsContexts(options, refresh_check_s=refresh_check_s)
        except TlsConfigError as error:
            raise ConfigError(f"{_KEYS.get(error.field, error.field)}: {error.reason}") from error


_KEYS = {
    "certificate_file": "brokerClientCertificateFilePath",
    "key_file": "brokerClientKeyFilePath",
    "trust_certs_file": "brokerClientTrustCertsFilePath",
}

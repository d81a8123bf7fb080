"""Authentication of a bookie's clients, and of what is a client of bookies in its process (spec
BK-08): keys of Apache's `bookkeeper.conf`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, fields

from geminga_bookie.wire.auth import BookieAuth, load_bookie_auth, load_client_auth
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.settings import ConfigError, listed, setting
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """Who may start the bookie, and who may speak to it."""

    provider: str = setting("bookieAuthProviderFactoryClass", "")
    roles: str = setting("authorizedRoles", "")
    users: str = setting("permittedStartupUsers", "")

    def auth(self, settings: Mapping[str, str]) -> BookieAuth | None:
        """The plug-in, which gets the settings. Raises ConfigError."""
        return load_bookie_auth(self.provider, listed(self.roles), settings)

    def check_user(self) -> None:
        """Raises ConfigError if this user may not start a bookie."""
        users = listed(self.users)
        if users and (user := _user()) not in users:
            raise ConfigError(f"permittedStartupUsers: user {user!r} is not one of them")


def _user() -> str:
    """Who runs the process. Environment variables don't matter: whoever starts it sets them."""
    user_id = os.geteuid()
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:  # as in a container
        return f"of id {user_id}"


@dataclass(frozen=True, slots=True)
class RemoteConfig:
    """How auto-recovery speaks to bookies."""

    provider: str = setting("clientAuthProviderFactoryClass", "")
    key_file: str = setting("clientKeyStore", "")
    trust_certs_file: str = setting("clientTrustStore", "")
    validate_hostname: bool = setting("tlsHostnameVerificationEnabled", False)

    def options(
        self, frame_bytes_max: int, settings: Mapping[str, str], certificate_file: str = ""
    ) -> RemoteOptions:
        """Connections to bookies: by TLS with `tlsProviderFactoryClass`, with a certificate if
        there is a key. Raises ConfigError.
        """
        key = "clientAuthProviderFactoryClass"
        auth = load_client_auth(key, self.provider, settings)
        tls = self._tls(certificate_file) if settings.get("tlsProviderFactoryClass") else None
        return RemoteOptions(frame_bytes_max=frame_bytes_max, tls=tls, auth=auth)

    def _tls(self, certificate_file: str) -> TlsContexts:
        options = ClientTls(
            certificate_file=certificate_file if self.key_file else "",
            key_file=self.key_file,
            trust_certs_file=self.trust_certs_file,
            validate_hostname=self.validate_hostname,
        )
        return client_contexts(options, {each.name: each.metadata["key"] for each in fields(self)})


def client_contexts(options: ClientTls, keys: Mapping[str, str]) -> TlsContexts:
    """TLS of a client; `keys` are those of the options by their names. Raises ConfigError."""
    try:
        return TlsContexts(options)
    except TlsConfigError as error:
        raise ConfigError(
            f"{keys.get(error.field, 'tlsCertificatePath')}: {error.reason}"
        ) from error

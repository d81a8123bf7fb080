"""Settings of authorization under Apache's names."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import ConfigError, setting

APACHE_PROVIDER = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """Keys of `broker.conf` about authorization."""

    enabled: bool = setting("authorizationEnabled", False)
    provider: str = setting("authorizationProvider", APACHE_PROVIDER)
    super_user_roles: str = setting("superUserRoles", "")
    proxy_roles: str = setting("proxyRoles", "")
    wildcards: bool = setting("authorizationAllowWildcardsMatching", False)
    authenticate_original: bool = setting("authenticateOriginalAuthData", False)
    authenticate_metrics: bool = setting("authenticateMetricsEndpoint", False)

    @property
    def super_users(self) -> frozenset[str]:
        """Roles that may do everything."""
        return _roles(self.super_user_roles)

    @property
    def proxies(self) -> frozenset[str]:
        """Roles that speak for others."""
        return _roles(self.proxy_roles)


def check_settings(settings: AuthorizationSettings, *, authenticates: bool) -> None:
    """Raises ConfigError for settings that exclude each other."""
    if settings.enabled and not authenticates:
        raise ConfigError("authorizationEnabled needs authenticationEnabled")
    if settings.provider != APACHE_PROVIDER:
        raise ConfigError(f"authorizationProvider: only {APACHE_PROVIDER} is supported")


def _roles(text: str) -> frozenset[str]:
    return frozenset(role.strip() for role in text.split(",") if role.strip())

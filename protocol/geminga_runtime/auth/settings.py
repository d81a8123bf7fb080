"""Settings of authentication under Apache's names, a group of broker's and proxy's settings."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Authentication keys of `broker.conf` and `proxy.conf` (spec PX-20, PX-21)."""

    enabled: bool = setting("authenticationEnabled", False)
    providers: str = setting("authenticationProviders", "")
    anonymous_role: str = setting("anonymousUserRole", "")
    refresh_check_s: int = setting("authenticationRefreshCheckSeconds", 60, at_least=1)

    token_secret_key: str = setting("tokenSecretKey", "", secret=True)
    token_public_key: str = setting("tokenPublicKey", "")
    token_public_alg: str = setting("tokenPublicAlg", "RS256")
    token_auth_claim: str = setting("tokenAuthClaim", "sub")
    token_audience_claim: str = setting("tokenAudienceClaim", "")
    token_audience: str = setting("tokenAudience", "")
    token_clock_skew_s: int = setting("tokenAllowedClockSkewSeconds", 0)

    basic_file: str = setting("basicAuthConf", "", secret=True)

    openid_issuers: str = setting("openIDAllowedTokenIssuers", "")
    openid_audiences: str = setting("openIDAllowedAudiences", "")
    openid_issuer_trust_certs_file_path: str = setting("openIDTokenIssuerTrustCertsFilePath", "")
    openid_role_claim: str = setting("openIDRoleClaim", "sub")
    openid_leeway_s: int = setting("openIDAcceptedTimeLeewaySeconds", 0)
    openid_cache_refresh_s: int = setting("openIDCacheRefreshAfterWriteSeconds", 18 * 3600)
    openid_cache_expiration_s: int = setting("openIDCacheExpirationSeconds", 24 * 3600, at_least=1)
    openid_cache_miss_s: int = setting("openIDKeyIdCacheMissRefreshSeconds", 300)
    openid_http_timeout_ms: int = setting("openIDHttpReadTimeoutMillis", 10_000, at_least=1)
    openid_require_https: bool = setting("openIDRequireIssuersUseHttps", True)
    openid_jwks_file: str = setting("openIDJwksFile", "")
    """Ours: a key set in a file, for issuers that can't be reached."""

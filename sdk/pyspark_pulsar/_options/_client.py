"""Options of the connection: service URL, authentication, TLS and `pulsar.client.*`, with the names
of Java's ClientConfigurationData (spec SP-07).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import geminga
import geminga.auth
from geminga.options import ClientKeywords
from pyspark_pulsar._options._parser import OptionParser, OptionTable
from pyspark_pulsar.errors import InvalidOption

PREFIX = "pulsar.client."
AUTH_FAULT = "they aren't shown here, because they are secret"


@dataclass(frozen=True)
class ClientSettings:
    """Settings of the connection: plain data that pickles and hashes, so that a process keeps one
    client for each. `repr` shows no secrets.
    """

    service_url: str
    admin_url: str | None = None
    """Base URL of the REST API, for the layout of topics; None: ask the brokers."""
    auth_plugin: str | None = None
    auth_params: str = field(default="", repr=False)
    tls_trust_certs_file_path: str | None = None
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = True
    tls_certificate_file_path: str | None = None
    tls_private_key_file_path: str | None = None
    tls_protocols: tuple[str, ...] = ()
    tls_ciphers: tuple[str, ...] = ()
    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    connections_per_broker: int = 1
    keep_alive_interval_s: float = 30.0
    memory_limit_bytes: int = 64 * 1024 * 1024
    listener_name: str | None = None
    lookup_redirects_max: int = 20
    trusted_broker_hosts: tuple[str, ...] = ()
    initial_backoff_s: float = 0.1
    max_backoff_s: float = 60.0
    stats_interval_s: float = 60.0

    def authentication(self) -> geminga.Authentication | None:
        """The SDK's authentication. Raises InvalidOption, without showing the parameters."""
        if self.auth_plugin is None:
            return None
        try:
            return geminga.auth.from_config(self.auth_plugin, self.auth_params)
        except geminga.InvalidArgumentError as error:
            if f"{self.auth_plugin!r} is none of" in str(error):
                raise InvalidOption(PREFIX + "authPluginClassName", str(error)) from None
            raise InvalidOption(PREFIX + "authParams", f"{error}; {AUTH_FAULT}") from None

    def keywords(self) -> ClientKeywords:
        """The keywords of `geminga.connect`, all but the service URL. Raises InvalidOption."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("service_url", "admin_url", "auth_plugin", "auth_params"):
            del found[name]
        return cast(ClientKeywords, {**found, "authentication": self.authentication()})


def _nanos(parser: OptionParser, name: str) -> float | None:
    found = parser.whole(name, least=1)
    return None if found is None else found / 1e9


_text = OptionParser.filled
_millis = partial(OptionParser.seconds, least_ms=1)
_count = partial(OptionParser.whole, least=1, most=1 << 16)
_seconds = partial(OptionParser.whole, least=1, most=1 << 31)
_flag = partial(OptionParser.flag, default=None)
_list = OptionParser.listed

_ROWS = (
    ("listenerName", "listener_name", _text),
    ("operationTimeoutMs", "operation_timeout_s", _millis),
    ("connectionTimeoutMs", "connection_timeout_s", _millis),
    ("connectionsPerBroker", "connections_per_broker", _count),
    (
        "keepAliveIntervalSeconds",
        "keep_alive_interval_s",
        _seconds,
    ),
    ("memoryLimitBytes", "memory_limit_bytes", OptionParser.size),
    ("maxLookupRedirects", "lookup_redirects_max", _count),
    ("trustedBrokerHosts", "trusted_broker_hosts", _list),
    ("initialBackoffIntervalNanos", "initial_backoff_s", _nanos),
    ("maxBackoffIntervalNanos", "max_backoff_s", _nanos),
    ("statsIntervalSeconds", "stats_interval_s", partial(OptionParser.whole, most=1 << 31)),
    ("tlsTrustCertsFilePath", "tls_trust_certs_file_path", _text),
    ("tlsAllowInsecureConnection", "tls_allow_insecure_connection", _flag),
    ("tlsHostnameVerificationEnable", "tls_validate_hostname", _flag),
    ("tlsCertificateFilePath", "tls_certificate_file_path", _text),
    ("tlsKeyFilePath", "tls_private_key_file_path", _text),
    ("tlsProtocols", "tls_protocols", _list),
    ("tlsCiphers", "tls_ciphers", _list),
)
_SCHEMES = {"pulsar": "pulsar+ssl", "pulsar+ssl": "pulsar+ssl", "http": "https", "https": "https"}
"""Scheme -> scheme with TLS."""

_REFUSED = {
    "numIoThreads": "this client has no I/O threads",
    "numListenerThreads": "this client has no listener threads",
    "useTcpNoDelay": "TCP_NODELAY is always on",
    "lookupTimeoutMs": "set operationTimeoutMs, which covers lookups too",
    "connectionMaxIdleSeconds": "connections are kept while the process lives",
    "concurrentLookupRequest": "lookups aren't limited in number",
    "maxLookupRequest": "lookups aren't limited in number",
    "maxNumberOfRejectedRequestPerConnection": "rejected requests don't close connections",
    "enableBusyWait": "busy waiting isn't supported",
    "enableTransaction": "reads and writes don't use transactions",
    "useKeyStoreTls": "give PEM files: tlsTrustCertsFilePath, tlsCertificateFilePath, "
    "tlsKeyFilePath",
    "tlsTrustStorePath": "give a PEM file by tlsTrustCertsFilePath",
    "tlsTrustStoreType": "give a PEM file by tlsTrustCertsFilePath",
    "tlsTrustStorePassword": "give a PEM file by tlsTrustCertsFilePath",
    "tlsKeyStorePath": "give PEM files by tlsCertificateFilePath and tlsKeyFilePath",
    "tlsKeyStoreType": "give PEM files by tlsCertificateFilePath and tlsKeyFilePath",
    "tlsKeyStorePassword": "give PEM files by tlsCertificateFilePath and tlsKeyFilePath",
    "sslProvider": "TLS always uses OpenSSL",
    "autoCertRefreshSeconds": "certificates are reloaded when their files change",
    "authParamMap": "give authParams, for most plug-ins as a JSON object",
    "proxyServiceUrl": "give the proxy's address as service.url",
    "proxyProtocol": "give the proxy's address as service.url",
    "socks5ProxyAddress": "SOCKS proxies aren't supported",
    "requestTimeoutMs": "set operationTimeoutMs, which covers every request",
    "readTimeoutMs": "set operationTimeoutMs, which covers every request",
}
_TABLE = OptionTable(PREFIX, _ROWS, ("authPluginClassName", "authParams", "useTls"), _REFUSED)


def parse_client(parser: OptionParser) -> ClientSettings:
    """The settings of the options `service.url`, `admin.url` and `pulsar.client.*`; the others stay
    in `parser`. Raises InvalidOption.
    """
    url = parser.filled("service.url", "serviceUrl", PREFIX + "serviceUrl")
    if url is None:
        raise InvalidOption("service.url", "must be given, such as pulsar://localhost:6650")
    url = _checked_url(parser, url.strip())
    plugin = parser.filled(PREFIX + "authPluginClassName")
    params = parser.text(PREFIX + "authParams")
    if params is not None and plugin is None:
        raise parser.fault(PREFIX + "authParams", "needs authPluginClassName")
    if plugin is not None and params is not None:
        _check_hidden(plugin, params)
    admin = parser.filled("admin.url", "adminUrl")
    if admin is not None:
        admin = admin.strip()
        _check_admin(parser.name_of("admin.url"), admin)
    values = _TABLE.read(parser)
    _TABLE.refuse_rest(parser)
    settings = ClientSettings(
        service_url=url, admin_url=admin, auth_plugin=plugin, auth_params=params or "", **values
    )
    keywords = settings.keywords()
    _TABLE.check(lambda: geminga.ClientOptions(**keywords))
    return settings


def _check_hidden(plugin: str, params: str) -> None:
    """Refuse secrets that Spark would show in its plans: it hides options by words in their names
    and values (`spark.redaction.regex`: secret, password, token, access key), which a bare token or
    a key need not contain.
    """
    text = params.strip()
    is_token = plugin.strip().lower().endswith("token")
    if is_token and not text.startswith(("token:", "file:", "env:", "{")):
        raise InvalidOption(
            PREFIX + "authParams",
            "must begin with token:, file: or env:, or be a JSON object: Spark shows a bare token "
            "in its plans",
        )
    if "data:" in text:
        raise InvalidOption(
            PREFIX + "authParams", "must name a file, not hold the key: Spark shows it in its plans"
        )


def _checked_url(parser: OptionParser, url: str) -> str:
    """The URL with the scheme that `useTls` requires. Hosts and ports are checked when the client
    is created.
    """
    option = parser.name_of("service.url")
    scheme, separator, hosts = url.partition("://")
    if scheme not in _SCHEMES or not separator or not hosts.strip("/"):
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise InvalidOption(option, f"must be {known} with a host, not {url!r}")
    if "@" in hosts:
        raise InvalidOption(
            option, "must not contain a user; set authPluginClassName and authParams"
        )
    secure = scheme in ("pulsar+ssl", "https")
    wanted = parser.flag(PREFIX + "useTls", default=secure)
    if secure and not wanted:
        raise parser.fault(PREFIX + "useTls", f"is false, but {option} is {scheme}://")
    return f"{_SCHEMES[scheme]}://{hosts}" if wanted else url


def _check_admin(option: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in url
        is_good = is_good and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidOption(option, "must be http://host:port or https://host:port")

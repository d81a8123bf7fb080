"""Connection and authentication options of all commands that connect to a broker, with the names of
pulsar-client and pulsar-perf, and the keys of `client.conf`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geminga.cli._client_conf import ClientConf, checked
from geminga.cli._credentials import read_now
from geminga.cli.admin.calls import NO_PLUGIN
from geminga_runtime.settings import ConfigError, gather

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from geminga.client import Client
    from geminga.options import ClientKeywords

URL_DEFAULT = "pulsar://localhost:6650"


@dataclass(frozen=True)
class Access:
    """Service URL, authentication and TLS."""

    url: str
    conf: ClientConf

    def connect(self, **options: Unpack[ClientKeywords]) -> AbstractAsyncContextManager[Client]:
        """`geminga.connect` with these. Raises its errors, and InvalidArgumentError for a wrong
        plug-in or a token that can't be read.
        """
        import geminga
        from geminga.auth import from_config

        conf = self.conf
        if conf.auth_plugin:
            found = from_config(conf.auth_plugin, conf.auth_params)
            if isinstance(found, geminga.AuthenticationToken):
                read_now(found._read)  # by its own reader: a pipe can be read only once
            options["authentication"] = found
        options["tls_trust_certs_file_path"] = conf.trust_certs or None
        options["tls_certificate_file_path"] = conf.certificate or None
        options["tls_private_key_file_path"] = conf.key or None
        options["tls_allow_insecure_connection"] = conf.allow_insecure
        options["tls_validate_hostname"] = conf.validate_hostname
        return geminga.connect(self.url, **options)


_KEYS = {
    "auth_plugin": "authPlugin",
    "auth_params": "authParams",
    "trust_certs": "tlsTrustCertsFilePath",
    "allow_insecure": "tlsAllowInsecureConnection",
    "hostname_verification": "tlsEnableHostnameVerification",
    "certificate": "tlsCertificateFilePath",
    "key": "tlsKeyFilePath",
}
"""The key of `client.conf` that each option overrides."""

_OPTIONS = (
    click.option("--auth-plugin", help="token, tls, basic, oauth2, or Apache's Java class."),
    click.option("--auth-params", help="token:..., file:///..., tlsCertFile:...,tlsKeyFile:... or "
                 "a JSON object, as the plug-in takes it."),
    click.option("--tlsTrustCertsFilePath", "--trust-cert-file", "trust_certs", metavar="FILE",
                 help="Authorities that are trusted, PEM."),
    click.option("--tls-allow-insecure/--no-tls-allow-insecure", "allow_insecure", default=None,
                 help="Trust any certificate."),
    click.option("--tls-hostname-verification/--no-tls-hostname-verification",
                 "hostname_verification", default=None,
                 help="Whether the certificate must name the host; it must by default."),
    click.option("--tls-cert-file", "certificate", metavar="FILE", help="Own certificate, PEM."),
    click.option("--tls-key-file", "key", metavar="FILE", help="Its private key, PEM."),
    click.option("--client-config", "-cf", "--conf-file", "config", envvar="PULSAR_CLIENT_CONF",
                 type=click.Path(dir_okay=False, path_type=Path),
                 help="A client.conf; options win over what it says."),
)  # fmt: skip


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: it has these options, and gets one `access` for them."""

    @functools.wraps(command)
    def wrapped(*args: Any, **given: Any) -> None:
        own = {name: given.pop(name) for name in ("service_url", "config", *_KEYS)}
        command(*args, access=_access(**own), **given)

    # As pulsar-client and pulsar-perf name it; each is taken everywhere.
    names = "-u", "--service-url", "--url"
    url = click.option(*names, "service_url", help=f"Default: {URL_DEFAULT}")
    for option in reversed((url, *_OPTIONS)):
        option(wrapped)
    return wrapped


def _access(service_url: str | None, config: Path | None, **given: str | bool | None) -> Access:
    overrides = {
        _KEYS[name]: str(value).lower() if isinstance(value, bool) else value
        for name, value in given.items()
        if value is not None
    }
    try:
        conf = checked(gather(config, {}, overrides), config)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    if given["auth_params"] and not conf.auth_plugin:
        raise click.UsageError(NO_PLUGIN)
    url = service_url or conf.broker_url or conf.web_url or conf.service_url or URL_DEFAULT
    return Access(url, conf)

"""Calls of a command: operations of the admin client, their answers as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminga.cli._credentials import read_now

if TYPE_CHECKING:
    from geminga._admin.options import AdminOptions
    from geminga._admin.requests import Request
    from geminga._connection.service_url import Address
    from geminga_runtime.http.answers import HttpAnswer

URL_DEFAULT = "http://localhost:8080"
REQUEST_TIMEOUT_S = 60
NO_PLUGIN = "--auth-params has no effect without --auth-plugin (token, tls, basic or oauth2)"


@dataclass(frozen=True)
class Place:
    """The options before the commands: which cluster, and how it is spoken to."""

    admin_url: str | None = None
    auth_plugin: str | None = None
    auth_params: str | None = None
    request_timeout_s: int = REQUEST_TIMEOUT_S
    allow_insecure: bool | None = None
    trust_certs: str | None = None
    hostname_verification: bool | None = None
    certificate: str | None = None
    key: str | None = None
    config: Path | None = None
    trusted_broker_hosts: tuple[str, ...] = ()

    def settings(self) -> dict[str, str]:
        """Keys of `client.conf` with the file's values and, above them, those of the options.
        Raises UsageError if the file can't be read.
        """
        found: dict[str, str] = {}
        if self.config is not None:
            from geminga.cli._client_conf import checked
            from geminga_runtime.settings import ConfigError, gather

            try:
                values = gather(self.config, {})
                checked(values, self.config)
                found = {key: value for key, (value, _) in values.items()}
            except ConfigError as error:
                raise click.UsageError(str(error)) from None
        given = {
            "webServiceUrl": self.admin_url,
            "authPlugin": self.auth_plugin,
            "authParams": self.auth_params,
            "tlsAllowInsecureConnection": _text(self.allow_insecure),
            "tlsTrustCertsFilePath": self.trust_certs,
            "tlsEnableHostnameVerification": _text(self.hostname_verification),
            "tlsCertificateFilePath": self.certificate,
            "tlsKeyFilePath": self.key,
        }
        found |= {key: value for key, value in given.items() if value is not None}
        if self.auth_params and not found.get("authPlugin"):
            raise click.UsageError(NO_PLUGIN)
        return found


def _text(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()


@dataclass
class Calls:
    """Sends requests of one command. `open` makes the connection to the cluster on first use."""

    place: Place
    _ask: Callable[[Request], HttpAnswer] | None = field(default=None, repr=False)

    def ask(self, request: Request) -> HttpAnswer:
        """The answer. Raises GemingaError."""
        if self._ask is None:
            self._ask = asker(self.place)
        return self._ask(request)

    def call(self, operation: Callable[..., object], **values: object) -> object:
        """An operation's answer as JSON; a text where the answer is none. Raises GemingaError."""
        from geminga._admin.declared import declaration_of

        return answered(self.ask(declaration_of(operation).request((), values)))


def answered(answer: HttpAnswer) -> object:
    """An answer's JSON; its text if it is none, None without a body."""
    body = answer.body.strip()
    if not body:
        return None
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    return found


def asker(place: Place) -> Callable[[Request], HttpAnswer]:
    """What sends requests to that place. Raises GemingaError for unusable settings, UsageError for
    options that can't be.
    """
    from geminga._admin.exchange import parse_admin_url
    from geminga._admin.options import AdminOptions

    settings = place.settings()
    url = settings.get("webServiceUrl") or settings.get("serviceUrl") or URL_DEFAULT
    named = "--admin-url" if place.admin_url else "webServiceUrl"
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"{named} must begin with http:// or https://, not {url!r}")
    addresses = parse_admin_url(url.rstrip("/"), named)
    plugin, params = settings.get("authPlugin") or "", settings.get("authParams") or ""
    certificate = settings.get("tlsCertificateFilePath") or None
    key = settings.get("tlsKeyFilePath") or None
    authentication, headers = None, {}
    if plugin:
        from geminga._connection.auth_config import header_of, kind_of, tls_files_of

        kind = kind_of(plugin)
        if kind == "tls":
            certificate, key = tls_files_of(params)
        elif kind in ("token", "basic"):
            headers = read_now(partial(header_of, kind, params))
        else:
            from geminga.auth import from_config

            authentication = from_config(plugin, params)
    options = AdminOptions(
        authentication=authentication,
        request_timeout_s=place.request_timeout_s,
        trusted_broker_hosts=place.trusted_broker_hosts,
        tls_trust_certs_file_path=settings.get("tlsTrustCertsFilePath") or None,
        tls_allow_insecure_connection=_is_true(settings.get("tlsAllowInsecureConnection"), False),
        tls_validate_hostname=_is_true(settings.get("tlsEnableHostnameVerification"), True),
        tls_certificate_file_path=certificate,
        tls_private_key_file_path=key,
    )
    if authentication is not None:
        return by_trio(addresses, options)
    from geminga.cli.admin.plain_http import PlainHttp

    return PlainHttp(addresses, options, headers).ask


def _is_true(value: str | None, default: bool) -> bool:
    return default if not value else value.strip().lower() == "true"


def by_trio(
    addresses: tuple[Address, ...], options: AdminOptions
) -> Callable[[Request], HttpAnswer]:
    """For credentials that need Trio: OAuth2 asks a server for them."""

    def ask(request: Request) -> HttpAnswer:
        import trio

        from geminga._admin.transport import Transport

        async def main() -> HttpAnswer:
            transport = Transport(addresses, options)
            try:
                return await transport.ask(request)
            finally:
                await transport.aclose()  # noqa: ASYNC102 - closes without waiting

        return trio.run(main)

    return ask

"""The REST API of `admin.url`: layouts of topics, and statistics (spec SP-03)."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from fnmatch import fnmatchcase
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import quote, urlsplit

import trio

from pyspark_pulsar._options import ClientSettings
from pyspark_pulsar._positions import LedgerSpan, TopicPartition
from pyspark_pulsar.errors import InvalidOption, TopicMissing

OPTION = "admin.url"
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""The longest response that is read; a ledger takes about 150 bytes in it."""
REDIRECT_TO_PLAIN = "redirect from TLS to plain"
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def ledgers_by_rest(settings: ClientSettings, topic: str) -> list[LedgerSpan]:
    """All ledgers of a topic, by its `internalStats`. Raises InvalidOption, naming `admin.url`, if
    the request fails, TopicMissing if the topic doesn't exist.
    """
    code, answer = ask_rest(settings, f"{path_of(topic)}/internalStats", topic)
    if code == 404:
        raise TopicMissing(topic, f"the REST API of {OPTION} has no such topic")
    if code != 200:
        raise InvalidOption(OPTION, f"answers {code} for {topic}")
    try:
        return _spans(answer)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOption(
            OPTION, f"the response is not a topic's internalStats: {error!r}"
        ) from None


def check_admin(settings: ClientSettings, parts: Sequence[TopicPartition]) -> None:
    """Request one of the topics, so that a wrong `admin.url` is reported at once. Raises
    InvalidOption.
    """
    if settings.admin_url is None or not parts:
        return
    topic, number, _ = parts[0]
    try:
        ledgers_by_rest(settings, topic)
    except TopicMissing:
        # A partition may have been deleted.
        if number < 0:
            raise InvalidOption(
                OPTION,
                f"has no topic {topic}, but the brokers of service.url have it: check that the URL "
                "is the same cluster's and has the right path",
            ) from None


def path_of(topic: str) -> str:
    """A topic's full name in paths of the API."""
    domain, _, rest = topic.partition("://")
    return "/".join(quote(each, safe="") for each in (domain, *rest.split("/", 2)))


def ask_rest(settings: ClientSettings, path: str, topic: str) -> tuple[int, Any]:
    """Status and JSON of `/admin/v2/{path}` of `admin.url`; no JSON if the status isn't 200. Raises
    InvalidOption, naming `admin.url`, if the request fails.
    """
    base = (settings.admin_url or "").rstrip("/")
    code, text = _get(settings, f"{base}/admin/v2/{path}", topic)
    if code != 200:
        return code, None
    try:
        return code, json.loads(text)
    except ValueError as error:
        raise InvalidOption(OPTION, f"answers {path} with invalid JSON: {error!r}") from None


def _spans(stats: Any) -> list[LedgerSpan]:
    found = {}
    ledgers = stats["ledgers"]
    if not isinstance(ledgers, list):
        raise TypeError("ledgers is no list")
    for each in ledgers:
        found[int(each["ledgerId"])] = int(each["entries"])
    if found:
        # The list doesn't count entries of the ledger that is being written.
        current = max(found)
        found[current] = max(found[current], int(str(stats["currentLedgerEntries"])))
    return [LedgerSpan(ledger, 0, count - 1) for ledger, count in sorted(found.items())]


def _get(settings: ClientSettings, url: str, topic: str) -> tuple[int, bytes]:
    auth = settings.authentication()
    redirects = _Redirects(url, settings.trusted_broker_hosts)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), redirects]
    if urlsplit(url).scheme == "https":
        certificate = None if auth is None else auth.tls_certificate
        context = _context(settings, certificate)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    # As the SDK's own client does: a token may have to be read or fetched first.
    headers = {} if auth is None else trio.run(auth.http_headers)
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, headers=headers)
    try:
        with opener.open(request, timeout=settings.operation_timeout_s) as response:
            found: bytes = response.read(ANSWER_BYTES_MAX)
            return response.status, found
    except urllib.error.HTTPError as error:
        error.close()
        if error.reason == REDIRECT_TO_PLAIN:
            raise InvalidOption(
                OPTION, f"answers {error.code} {error.reason} for {topic}"
            ) from None
        return error.code, b""
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InvalidOption(OPTION, f"request for {topic} failed: {reason}") from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the broker that owns the topic. Credentials are never sent from TLS to
    plain HTTP, and only to `admin.url`'s address and `pulsar.client.trustedBrokerHosts`.
    """

    def __init__(self, url: str, trusted: Sequence[str]) -> None:
        self._first = _authority(url)
        self._trusted = [pattern.lower() for pattern in trusted]

    def _trusts(self, url: str) -> bool:
        authority = _authority(url)
        names = (authority, authority.rpartition(":")[0].strip("[]"))
        listed = any(fnmatchcase(name, each) for each in self._trusted for name in names)
        return authority == self._first or listed

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The redirected request. Raises HTTPError."""
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.HTTPError(newurl, code, REDIRECT_TO_PLAIN, headers, fp)
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and not self._trusts(newurl):
            following.remove_header("Authorization")
        return following


def _authority(url: str) -> str:
    """Host and port."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _context(settings: ClientSettings, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    """A TLS context of the settings. Raises InvalidOption."""
    option, path = "pulsar.client.tlsTrustCertsFilePath", settings.tls_trust_certs_file_path
    try:
        context = ssl.create_default_context(cafile=path)
        if settings.tls_allow_insecure_connection or not settings.tls_validate_hostname:
            context.check_hostname = False
        if settings.tls_allow_insecure_connection:
            context.verify_mode = ssl.CERT_NONE
        if settings.tls_protocols:
            versions = sorted(_VERSIONS[name] for name in settings.tls_protocols)
            context.minimum_version, context.maximum_version = versions[0], versions[-1]
        if settings.tls_ciphers:
            option = "pulsar.client.tlsCiphers"
            context.set_ciphers(":".join(settings.tls_ciphers))
        own, key = settings.tls_certificate_file_path, settings.tls_private_key_file_path
        shown = certificate or ((own, key) if own and key else None)
        if shown is not None:
            option = "pulsar.client.tlsCertificateFilePath"
            context.load_cert_chain(*shown)
    except (OSError, ssl.SSLError) as error:
        raise InvalidOption(option, f"can't be used for {OPTION}: {error}") from None
    return context

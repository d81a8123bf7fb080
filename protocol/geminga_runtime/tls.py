"""TLS contexts from PEM files, for clients and servers, reloaded when the files change (spec PX-25;
Apache's SecurityUtility).

The next connection uses a replaced certificate; open connections are not affected. If the new files
are invalid, the old ones stay in use and the error is logged once.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

_log = logging.getLogger(__name__)

PROTOCOLS = ("TLSv1.3", "TLSv1.2")
"""Supported versions. Older ones are insecure and refused even if configured."""

REFRESH_CHECK_S = 300.0
"""Interval of checks for changed files (tlsCertRefreshCheckDurationSec)."""

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsConfigError(Exception):
    """A file or setting is invalid. `field` is the option's name; the text begins with it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files, protocols and ciphers, the same for both sides. Empty means not set.

    `ciphers` are OpenSSL's or Java's names. TLS 1.3's suites can't be chosen one by one: any of
    them in the list enables TLS 1.3 with all its suites; without one, TLS 1.3 is off.
    """

    certificate_file: str = ""
    key_file: str = ""
    trust_certs_file: str = ""
    allow_insecure: bool = False
    protocols: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientTls(TlsOptions):
    """A client's options. Without `trust_certs_file` it trusts the system's authorities; with
    `allow_insecure` any server.
    """

    validate_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises TlsConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _common(context, self)
        context.check_hostname = self.validate_hostname and not self.allow_insecure
        if self.allow_insecure:
            context.verify_mode = ssl.CERT_NONE
        else:
            _load_trust(context, self.trust_certs_file)
        if self.certificate_file or self.key_file:
            _load_chain(context, self)
        return context


@dataclass(frozen=True, slots=True)
class ServerTls(TlsOptions):
    """A server's options. With a `trust_certs_file`, clients are asked for a certificate; an
    untrusted one ends the handshake. With `allow_insecure` they are not asked: an unverified name
    must not become an identity.
    """

    require_client_certificate: bool = False

    def context(self) -> ssl.SSLContext:
        """Raises TlsConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _common(context, self)
        _load_chain(context, self)
        # A client that closes with an unread ticket would reset the connection.
        context.num_tickets = 0
        if self.require_client_certificate:
            if self.allow_insecure:
                reason = "an unproven certificate is as good as none"
                raise TlsConfigError("require_client_certificate", reason)
            context.verify_mode = ssl.CERT_REQUIRED
            _load_trust(context, self.trust_certs_file)
        elif self.trust_certs_file and not self.allow_insecure:
            context.verify_mode = ssl.CERT_OPTIONAL
            _load_trust(context, self.trust_certs_file)
        return context


class TlsContexts:
    """The context for the next connection. The constructor raises TlsConfigError."""

    def __init__(
        self,
        options: ClientTls | ServerTls,
        *,
        refresh_check_s: float = REFRESH_CHECK_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.options = options
        self._refresh_check_s = refresh_check_s
        self._clock = clock or _trio_time
        self._files = tuple(
            path
            for path in (options.certificate_file, options.key_file, options.trust_certs_file)
            if path
        )
        self._seen = self._stamps()
        self._context = options.context()
        self._next_check_s = self._clock() + refresh_check_s

    def current(self) -> ssl.SSLContext:
        """The context; checks the files for changes if the interval has passed."""
        now_s = self._clock()
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + self._refresh_check_s
            stamps = self._stamps()
            if stamps != self._seen:
                self._seen = stamps
                self._load()
        return self._context

    def _load(self) -> None:
        try:
            self._context = self.options.context()
        except TlsConfigError as error:
            _log.error("changed certificates can't be used, keeping the old ones: %s", error)
        else:
            _log.info("certificates reloaded: %s", ", ".join(self._files))

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(_stamp(path) for path in self._files)


def _trio_time() -> float:
    """Trio's clock; imported late, for programs without its loop."""
    import trio

    return trio.current_time()


def peer_certificate(tls: ssl.SSLObject) -> bytes | None:
    """The peer's certificate (DER), if it has one and it was verified; otherwise None."""
    # The parsed form of an unverified certificate is empty.
    return tls.getpeercert(binary_form=True) if tls.getpeercert() else None


def tls_reason(error: BaseException) -> str:
    """Why TLS failed: OpenSSL's text without its prefixes."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "the peer does not speak TLS"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS: {error.reason.lower().replace('_', ' ')}"
    return str(error) or type(error).__name__


_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _common(context: ssl.SSLContext, options: TlsOptions) -> None:
    wanted = options.protocols or PROTOCOLS
    for name in wanted:
        if name not in _VERSIONS:
            raise TlsConfigError("protocols", f"{name!r} is none of {', '.join(PROTOCOLS)}")
    versions = {_VERSIONS[name] for name in wanted}
    if options.ciphers:
        older = [_openssl_name(name) for name in options.ciphers if not _is_tls13(name)]
        newer = len(older) < len(options.ciphers)
        versions &= {_VERSIONS["TLSv1.2"]} if not newer else set(_VERSIONS.values())
        versions &= {_VERSIONS["TLSv1.3"]} if not older else set(_VERSIONS.values())
        if not versions:
            raise TlsConfigError("ciphers", f"none of them is for {', '.join(wanted)}")
        if older:
            try:
                context.set_ciphers(":".join(older))
            except ssl.SSLError:
                given = ", ".join(options.ciphers)
                raise TlsConfigError("ciphers", f"none is known of {given}") from None
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _is_tls13(name: str) -> bool:
    return name.startswith("TLS_") and "_WITH_" not in name


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite, from Java's name."""
    if not name.startswith("TLS_"):
        return name
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    for bits in ("128", "256"):
        cipher = cipher.replace(f"AES_{bits}_CBC", f"AES{bits}").replace(
            f"AES_{bits}", f"AES{bits}"
        )
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [cipher] if exchange == "RSA" else [exchange, cipher]
    return "-".join(parts).replace("_", "-")


def _load_trust(context: ssl.SSLContext, path: str) -> None:
    if not path:
        context.load_default_certs()
        return
    _readable("trust_certs_file", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsConfigError("trust_certs_file", f"{path} has no certificate in PEM") from error


_LACKING = "it is not set; a TLS port needs a certificate and its key"


class _Encrypted(Exception):
    """The key is encrypted with a password."""


def _load_chain(context: ssl.SSLContext, options: TlsOptions) -> None:
    certificate, key = options.certificate_file, options.key_file
    if not certificate:
        raise TlsConfigError("certificate_file", _LACKING)
    if not key:
        raise TlsConfigError("key_file", _LACKING)
    _readable("certificate_file", certificate)
    _readable("key_file", key)

    def ask() -> NoReturn:
        raise _Encrypted

    try:
        context.load_cert_chain(certificate, key, password=ask)
    except _Encrypted:
        reason = f"{key} is encrypted: store it without a password, readable by this user only"
        raise TlsConfigError("key_file", reason) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{key} is not the key of {certificate}"
            raise TlsConfigError("key_file", reason) from None
        raise _damaged(certificate, key) from None


def _damaged(certificate: str, key: str) -> TlsConfigError:
    """Find the damaged file of the two, which OpenSSL doesn't name."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
    except ssl.SSLError:
        return TlsConfigError("certificate_file", f"{certificate} has no certificate in PEM")
    return TlsConfigError("key_file", f"{key} has no private key in PEM")


def _readable(field: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsConfigError(field, f"{path} can't be read: {error.strerror}") from error

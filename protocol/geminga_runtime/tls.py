"""TLS contexts from files in PEM, for clients and servers, made anew when the files change (spec
PX-25; Apache's SecurityUtility).

A certificate that is replaced on disk is used by the next connection; those that stand live on. If
the new files can't be used, the old ones stay in use and that is logged once.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import trio

_log = logging.getLogger(__name__)

PROTOCOLS = ("TLSv1.3", "TLSv1.2")
"""What is spoken. Older versions are broken and refused, also where they are asked for."""

REFRESH_CHECK_S = 300.0
"""How often files are looked at (tlsCertRefreshCheckDurationSec)."""

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsConfigError(Exception):
    """A file or setting can't be used. `field` is the option's name, which the text begins with."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files, protocols and ciphers, the same for both sides. Empty means: not set.

    `ciphers` are OpenSSL's or Java's names. TLS 1.3's own suites can't be chosen one by one: with
    any of them in the list TLS 1.3 is spoken, with all its suites; with none it is not.
    """

    certificate_file: str = ""
    key_file: str = ""
    trust_certs_file: str = ""
    allow_insecure: bool = False
    protocols: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientTls(TlsOptions):
    """A client's side. Without `trust_certs_file` the system's authorities are trusted; with
    `allow_insecure` any server is.
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
    """A server's side. Clients are asked for a certificate if there is a `trust_certs_file`; one
    that it doesn't vouch for ends the handshake. With `allow_insecure` none is asked for, so that
    an unproven name can't be taken for an identity.
    """

    require_client_certificate: bool = False

    def context(self) -> ssl.SSLContext:
        """Raises TlsConfigError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _common(context, self)
        _load_chain(context, self)
        # A client that closes before it has read a ticket would reset the connection.
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
    """The context for the next connection. Raises TlsConfigError when it is made."""

    def __init__(
        self,
        options: ClientTls | ServerTls,
        *,
        refresh_check_s: float = REFRESH_CHECK_S,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.options = options
        self._refresh_check_s = refresh_check_s
        self._clock = clock
        self._files = tuple(
            path
            for path in (options.certificate_file, options.key_file, options.trust_certs_file)
            if path
        )
        self._seen = self._stamps()
        self._context = options.context()
        self._next_check_s = clock() + refresh_check_s

    def current(self) -> ssl.SSLContext:
        """Looks at the files if it is time to."""
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


def peer_certificate(tls: ssl.SSLObject) -> bytes | None:
    """The certificate (DER) that the peer proved to have in the handshake, vouched for by a trusted
    authority; None if it showed none or none was verified.
    """
    # The parsed form of an unverified certificate is empty.
    return tls.getpeercert(binary_form=True) if tls.getpeercert() else None


def tls_reason(error: BaseException) -> str:
    """Why TLS failed, in words without OpenSSL's decoration."""
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
    """OpenSSL's name of a suite of TLS 1.2 that Java's name is given of."""
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


class _Encrypted(Exception):
    """The key wants a password."""


def _load_chain(context: ssl.SSLContext, options: TlsOptions) -> None:
    certificate, key = options.certificate_file, options.key_file
    if not certificate:
        raise TlsConfigError("certificate_file", "it is not set")
    if not key:
        raise TlsConfigError("key_file", "it is not set")
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
    """Which of the two OpenSSL didn't like: it doesn't say."""
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

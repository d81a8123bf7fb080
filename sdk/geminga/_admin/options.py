"""Options of the admin client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga._connection.authentication import Authentication, check_authentication
from geminga._connection.tls_options import TlsOptions
from geminga._options.checks import lists_of_texts, positive, whole


@dataclass(frozen=True)
class AdminOptions(TlsOptions):
    """Options of `geminga.admin.connect`; see `geminga.options.TlsOptions` for those of TLS.

    `request_timeout_s` bounds a call with all its redirects, `answer_bytes_max` the body of an
    answer.

    Redirects are followed to the brokers that they name. Credentials follow to hosts of the service
    URL and of `trusted_broker_hosts` (`*` matches anything; also `host:port`). If none are given,
    they also follow a redirect from https to https, whose sender has proved its name.
    """

    authentication: Authentication | None = None
    request_timeout_s: float = 60.0
    connection_timeout_s: float = 10.0
    redirects_max: int = 5
    trusted_broker_hosts: Sequence[str] = ()
    answer_bytes_max: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        check_authentication(self.authentication)
        self.check_tls()
        positive(self, "request_timeout_s", "connection_timeout_s")
        whole(self, "redirects_max")
        whole(self, "answer_bytes_max", least=1)
        lists_of_texts(self, "trusted_broker_hosts")

"""Service URLs and their failover, with the names of the official client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import geminga.failover
from geminga.pulsar._auth import Authentication
from geminga.pulsar._checks import check_type, check_type_or_none


class ServiceInfo:
    """A cluster's service URL, with its authentication and trusted authorities."""

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ) -> None:
        check_type(str, service_url, "service_url")
        check_type_or_none(Authentication, authentication, "authentication")
        check_type_or_none(str, tls_trust_certs_file_path, "tls_trust_certs_file_path")
        self._service_url = service_url
        self._authentication = authentication
        self._tls_trust_certs_file_path = tls_trust_certs_file_path

    @property
    def service_url(self) -> str:
        """The service URL."""
        return self._service_url

    @property
    def use_tls(self) -> bool:
        """Whether the URL is one of TLS."""
        return self._service_url.startswith(("pulsar+ssl:", "https:"))

    @property
    def tls_trust_certs_file_path(self) -> str | None:
        """The file of trusted authorities."""
        return self._tls_trust_certs_file_path

    def __repr__(self) -> str:
        return (
            f"ServiceInfo(service_url={self.service_url!r}, use_tls={self.use_tls!r}, "
            f"tls_trust_certs_file_path={self.tls_trust_certs_file_path!r})"
        )

    @classmethod
    def wrap(cls, service_info: ServiceInfo) -> ServiceInfo:
        """The same object: there is no other class here."""
        return service_info


class ServiceInfoProvider(ABC):
    """Base of a program's own discovery of clusters. No client takes one: use AutoClusterFailover,
    or make a new Client.
    """

    @abstractmethod
    def initial_service_info(self) -> ServiceInfo:
        """The cluster to begin with."""

    @abstractmethod
    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Keep the function, by which later changes are told."""

    def close(self) -> None:
        """The client is closed."""
        return


class AutoClusterFailover:
    """The clusters of a client: after `failover_threshold` failed checks in a row the first that
    can be reached is used, after `switch_back_threshold` good checks the primary again.
    """

    def __init__(
        self,
        primary: ServiceInfo,
        secondary: list[ServiceInfo],
        check_interval_ms: int = 5000,
        failover_threshold: int = 1,
        switch_back_threshold: int = 1,
    ) -> None:
        check_type(ServiceInfo, primary, "primary")
        check_type(list, secondary, "secondary")
        numbers = {
            "check_interval_ms": check_interval_ms,
            "failover_threshold": failover_threshold,
            "switch_back_threshold": switch_back_threshold,
        }
        for name, number in numbers.items():
            check_type(int, number, name)
        if not secondary:
            raise ValueError("secondary must have a ServiceInfo at least")
        for index, each in enumerate(secondary):
            check_type(ServiceInfo, each, f"secondary[{index}]")
        for name, number in numbers.items():
            if number <= 0:
                raise ValueError(f"{name} must be above 0")
        self.primary = primary
        self.secondary = list(secondary)
        self.check_interval_ms = check_interval_ms
        self.failover_threshold = failover_threshold
        self.switch_back_threshold = switch_back_threshold

    def __repr__(self) -> str:
        return (
            f"AutoClusterFailover(primary={self.primary!r}, secondary={self.secondary!r}, "
            f"check_interval_ms={self.check_interval_ms!r}, "
            f"failover_threshold={self.failover_threshold!r}, "
            f"switch_back_threshold={self.switch_back_threshold!r})"
        )

    def _policy(self, of_client: Mapping[str, Any]) -> geminga.failover.AutoClusterFailover:
        """With the client's arguments of TLS, which count for all clusters."""
        interval_s = self.check_interval_ms / 1000
        return geminga.failover.AutoClusterFailover(
            [
                geminga.failover.FailoverCluster(
                    service_url=each.service_url,
                    authentication=each._authentication.auth if each._authentication else None,
                    tls_trust_certs_file_path=each.tls_trust_certs_file_path,
                    tls_allow_insecure_connection=of_client["tls_allow_insecure_connection"],
                    tls_validate_hostname=of_client["tls_validate_hostname"],
                    tls_private_key_file_path=of_client["tls_private_key_file_path"],
                    tls_certificate_file_path=of_client["tls_certificate_file_path"],
                )
                for each in self.secondary
            ],
            # The first failed check counts, so one interval less.
            failover_delay_s=interval_s * (self.failover_threshold - 1),
            switch_back_delay_s=interval_s * (self.switch_back_threshold - 1),
            check_interval_s=interval_s,
        )

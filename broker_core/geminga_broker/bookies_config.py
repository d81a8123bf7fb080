"""Settings of how a broker uses bookies: Apache's `bookkeeper…` keys of `broker.conf`, with its
defaults (spec BK-21, BK-22, BK-25).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from geminga_bookie.client.api import ClientOptions, ReadOptions
from geminga_bookie.client.health import HealthOptions
from geminga_bookie.client.placement_rules import Isolation, PlacementOptions
from geminga_bookie.wire.auth import load_client_auth
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.settings import ConfigError, setting
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts


@dataclass(frozen=True, slots=True)
class BookiesConfig:
    """Which bookies ledgers get, and how they are read."""

    timeout_s: int = setting("bookkeeperClientTimeoutInSeconds", 30, at_least=1)
    by_rack: bool = setting("bookkeeperClientRackawarePolicyEnabled", True)
    by_region: bool = setting("bookkeeperClientRegionawarePolicyEnabled", False)
    min_racks: int = setting("bookkeeperClientMinNumRacksPerWriteQuorum", 2, at_least=1)
    enforce_racks: bool = setting("bookkeeperClientEnforceMinNumRacksPerWriteQuorum", False)
    regions: str = setting("reppRegionsToWrite", "")
    """Names that semicolons separate."""
    min_regions: int = setting("reppMinimumRegionsForDurability", 2)
    enforce_regions_in_replace: bool = setting("reppEnableDurabilityEnforcementInReplace", True)
    isolation_groups: str = setting("bookkeeperClientIsolationGroups", "")
    secondary_isolation_groups: str = setting("bookkeeperClientSecondaryIsolationGroups", "")
    by_weight: bool = setting("bookkeeperDiskWeightBasedPlacementEnabled", False)
    weigh_interval_s: int = setting(
        "bookkeeperClientGetBookieInfoIntervalSeconds", 86_400, at_least=1
    )
    weigh_retry_s: int = setting(
        "bookkeeperClientGetBookieInfoRetryIntervalSeconds", 60, at_least=1
    )
    health_check: bool = setting("bookkeeperClientHealthCheckEnabled", True)
    health_interval_s: int = setting("bookkeeperClientHealthCheckIntervalSeconds", 60, at_least=1)
    health_errors_max: int = setting("bookkeeperClientHealthCheckErrorThresholdPerInterval", 5)
    quarantine_s: int = setting("bookkeeperClientHealthCheckQuarantineTimeInSeconds", 1800)
    quarantine_ratio: float = setting("bookkeeperClientQuarantineRatio", 1.0, at_most=1)
    reorder_reads: bool = setting("bookkeeperClientReorderReadSequenceEnabled", True)
    sticky_reads: bool = setting("bookkeeperEnableStickyReads", True)
    speculative_ms: int = setting("bookkeeperClientSpeculativeReadTimeoutInMillis", 0)
    adds_by_v2: bool = setting("bookkeeperUseV2WireProtocol", True)
    delay_change: bool = setting("bookkeeper_delayEnsembleChange", False)

    auth_plugin: str = setting("bookkeeperClientAuthenticationPlugin", "")
    auth_name: str = setting("bookkeeperClientAuthenticationParametersName", "")
    auth_parameters: str = setting("bookkeeperClientAuthenticationParameters", "", secret=True)
    tls_provider: str = setting("bookkeeperTLSProviderFactoryClass", "")
    """With a name, whichever, connections are by TLS; Apache's switch is the same key."""
    tls_client_authentication: bool = setting("bookkeeperTLSClientAuthentication", False)
    certificate_file: str = setting("bookkeeperTLSCertificateFilePath", "")
    key_file: str = setting("bookkeeperTLSKeyFilePath", "")
    trust_certs_file: str = setting("bookkeeperTLSTrustCertsFilePath", "")
    verify_hostname: bool = setting("bookkeeper_tlsHostnameVerificationEnabled", False)
    tls_refresh_s: int = setting("bookkeeperTlsCertFilesRefreshDurationSeconds", 300)

    def connections(self, frame_bytes_max: int) -> RemoteOptions:
        """Connections to bookies. Raises ConfigError."""
        timeout_s = float(self.timeout_s)
        parameters = {self.auth_name: self.auth_parameters} if self.auth_name else {}
        return RemoteOptions(
            add_timeout_s=timeout_s,
            read_timeout_s=timeout_s,
            frame_bytes_max=frame_bytes_max,
            adds_by_v2=self.adds_by_v2,
            tls=self._tls(),
            auth=load_client_auth(
                "bookkeeperClientAuthenticationPlugin", self.auth_plugin, parameters
            ),
        )

    def _tls(self) -> TlsContexts | None:
        if not (self.tls_client_authentication and self.tls_provider):
            return None
        options = ClientTls(
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            trust_certs_file=self.trust_certs_file,
            validate_hostname=self.verify_hostname,
        )
        try:
            return TlsContexts(options, refresh_check_s=self.tls_refresh_s or math.inf)
        except TlsConfigError as error:
            keys = {each.name: each.metadata["key"] for each in fields(self)}
            raise ConfigError(f"{keys[error.field]}: {error.reason}") from error

    def placement(self) -> PlacementOptions:
        """Raises ConfigError."""
        regions = frozenset(each.strip() for each in self.regions.split(";") if each.strip())
        if regions and len(regions) < self.min_regions:
            raise ConfigError(
                f"reppRegionsToWrite names {len(regions)} regions, "
                f"reppMinimumRegionsForDurability asks for {self.min_regions}"
            )
        isolation = Isolation.of(self.isolation_groups, self.secondary_isolation_groups)
        return PlacementOptions(
            by_rack=self.by_rack,
            by_region=self.by_region,
            min_racks=self.min_racks,
            enforce_racks=self.enforce_racks,
            regions=regions,
            min_regions=self.min_regions,
            enforce_regions_in_replace=self.enforce_regions_in_replace,
            by_weight=self.by_weight,
            # As in Apache's broker, secondary groups without primary ones say nothing.
            isolation=isolation if isolation.primary else Isolation(),
        )

    def health(self) -> HealthOptions:
        """Settings of the quarantine."""
        return HealthOptions(
            enabled=self.health_check,
            interval_s=self.health_interval_s,
            errors_max=self.health_errors_max,
            quarantine_s=self.quarantine_s,
            ratio=self.quarantine_ratio,
        )

    def client(self) -> ClientOptions:
        """Settings of the ledger client."""
        reads = ReadOptions(sticky=self.sticky_reads, speculative_s=self.speculative_ms / 1000)
        return ClientOptions(reads, delay_change=self.delay_change)

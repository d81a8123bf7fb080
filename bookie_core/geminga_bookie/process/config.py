"""The configuration of `geminga bookie`: keys of Apache's `bookkeeper.conf`, typed, with Apache's
defaults except those about memory (spec OP-07, BK-09, BK-10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from geminga_bookie.autorecovery.options import AutoRecoveryOptions, RackConfig
from geminga_bookie.options import BookieOptions, DiskOptions, GcOptions, JournalOptions
from geminga_bookie.process.address import Endpoint, resolve
from geminga_bookie.process.security import RemoteConfig, SecurityConfig
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.server import BookieServerOptions
from geminga_bookie.wire.session_limits import SessionLimits
from geminga_runtime.metadata.zookeeper_url import parse_url, store_of_ledgers
from geminga_runtime.settings import (
    ConfigError,
    Origins,
    build,
    check_choice,
    gather,
    listed,
    setting,
    written,
)
from geminga_runtime.tls import ServerTls, TlsConfigError, TlsContexts
from geminga_runtime.tls_settings import check_ports_differ

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MetadataConfig:
    """Where the cluster's metadata is."""

    service_uri: str = setting("metadataServiceUri", "")
    zk_servers: str = setting("zkServers", "")
    zk_ledgers_root: str = setting("zkLedgersRootPath", "/ledgers")
    session_timeout_ms: int = setting("zkTimeout", 30_000, at_least=1)

    def store_url(self) -> str:
        """The metadata store's URL. Raises ConfigError."""
        if self.service_uri:
            key, uri = "metadataServiceUri", self.service_uri
        elif self.zk_servers:
            hosts, slash, chroot = self.zk_servers.partition("/")
            path = f"{slash}{chroot}".rstrip("/") + self.zk_ledgers_root
            key, uri = "zkServers, zkLedgersRootPath", f"zk+hierarchical://{hosts}{path}"
        else:
            raise ConfigError(
                "metadataServiceUri: must be set, e.g. to zk+hierarchical://HOST:2181/ledgers"
            )
        url = store_of_ledgers(key, uri)
        try:
            parse_url(url)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        return url


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Addresses, frames and requests in progress."""

    port: int = setting("bookiePort", 3181, at_least=1, at_most=65535)
    bookie_id: str = setting("bookieId", "")
    advertised_address: str = setting("advertisedAddress", "")
    listening_interface: str = setting("listeningInterface", "")
    allow_loopback: bool = setting("allowLoopback", False)
    host_name_as_id: bool = setting("useHostNameAsBookieID", False)
    frame_bytes_max: int = setting(
        "nettyMaxFrameSizeBytes", 5 * MIB + 10 * 1024, at_least=1024, at_most=1 << 30
    )
    """The default is that of Pulsar's bookkeeper.conf."""
    adds_max: int = setting("maxAddsInProgressLimit", 0)
    reads_max: int = setting("maxReadsInProgressLimit", 0)
    response_wait_ms: int = setting("waitTimeoutOnResponseBackpressureMs", -1, at_least=-1)
    close_on_timeout: bool = setting("closeChannelOnResponseTimeout", False)
    unfinished_bytes_max: int = setting("unfinishedFramesMaxBytes", 256 * MIB, at_least=1 << 20)
    """Ours, as the next ones: bounds over all connections."""
    waiting_bytes_max: int = setting("waitingReadsMaxBytes", 40 * MIB, at_least=1 << 14)
    answers_bytes_max: int = setting("waitingAnswersMaxBytes", 256 * MIB, at_least=1 << 20)

    def limits(self) -> SessionLimits:
        """Bounds of each connection."""
        usual = SessionLimits()
        wait_s = self.response_wait_ms / 1000 if self.response_wait_ms >= 0 else None
        closes = wait_s is not None and self.close_on_timeout
        return SessionLimits(
            frame_bytes_max=self.frame_bytes_max,
            unanswered_requests_max=max(self.adds_max, self.reads_max)
            or usual.unanswered_requests_max,
            write_timeout_s=usual.write_timeout_s if wait_s is None or not closes else wait_s,
            drop_after_s=None if closes else wait_s,
        )


@dataclass(frozen=True, slots=True)
class DirectoryConfig:
    """Directories, and the room on their disks."""

    journal: str = setting("journalDirectory", "")
    journals: str = setting("journalDirectories", "")
    ledgers: str = setting("ledgerDirectories", "")
    indexes: str = setting("indexDirectories", "")
    usage_max: float = setting("diskUsageThreshold", 0.95, at_least=0.01, at_most=1)
    usage_low: float = setting("diskUsageLwmThreshold", 0.0, at_most=1)
    """0: as `diskUsageThreshold`."""
    check_interval_ms: int = setting("diskCheckInterval", 10_000, at_least=1)
    read_only_enabled: bool = setting("readOnlyModeEnabled", True)
    read_only_on_any: bool = setting("readOnlyModeOnAnyDiskFullEnabled", False)
    read_only_forced: bool = setting("forceReadOnlyBookie", False)

    def disk(self) -> DiskOptions:
        """Thresholds. Raises ConfigError."""
        low = self.usage_low or self.usage_max
        if low > self.usage_max:
            raise ConfigError("diskUsageLwmThreshold must not be above diskUsageThreshold")
        return DiskOptions(
            usage_max=self.usage_max,
            usage_low=low,
            any_full=self.read_only_on_any,
            check_interval_s=self.check_interval_ms / 1000,
        )


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Journal, entry logs, caches, collection."""

    journal_sync: bool = setting("journalSyncData", True)
    journal_file_mb: int = setting("journalMaxSizeMB", 64, at_least=1)
    journal_backups: int = setting("journalMaxBackups", 5)
    journal_drops_cached: bool = setting("journalRemovePagesFromCache", True)
    journal_drops_from_cache: bool = setting("journalRemoveFromPageCache", True)
    """The key that BookKeeper reads; the one above is in the files that come with it."""
    write_cache_mb: int = setting("dbStorage_writeCacheMaxSizeMb", 64, at_least=1)
    read_cache_mb: int = setting("dbStorage_readAheadCacheMaxSizeMb", 32, at_least=1)
    read_ahead_entries: int = setting("dbStorage_readAheadCacheBatchSize", 4096, at_least=1)
    read_threads: int = setting("numReadWorkerThreads", 2, at_most=256)
    """0: one."""
    waiting_reads_max: int = setting("maxPendingReadRequestsPerThread", 10_000, at_least=1)
    add_threads: int = setting("numAddWorkerThreads", 1, at_most=256)
    """There are none here: with 0 adds have no bound, as in Apache."""
    waiting_adds_max: int = setting("maxPendingAddRequestsPerThread", 10_000, at_least=1)
    throttle_max_ms: int = setting("dbStorage_maxThrottleTimeMs", 10_000)
    flush_interval_ms: int = setting("flushInterval", 60_000, at_least=1)
    entry_log_bytes: int = setting("logSizeLimit", 1024 * MIB, at_least=1 << 16)
    gc_wait_ms: int = setting("gcWaitTime", 900_000, at_least=1)
    minor_interval_s: int = setting("minorCompactionInterval", 3600, at_least=-1)
    minor_threshold: float = setting("minorCompactionThreshold", 0.2, at_least=-1, at_most=1)
    major_interval_s: int = setting("majorCompactionInterval", 86_400, at_least=-1)
    major_threshold: float = setting("majorCompactionThreshold", 0.5, at_least=-1, at_most=1)
    scrub_interval_s: int = setting("localScrubInterval", 7 * 86_400)

    def gc(self) -> GcOptions:
        """Collection and compaction; an interval or threshold of 0 or less turns one off."""
        return GcOptions(
            gc_interval_s=self.gc_wait_ms / 1000,
            minor_interval_s=self.minor_interval_s,
            minor_threshold=self.minor_threshold if self.minor_interval_s > 0 else 0.0,
            major_interval_s=self.major_interval_s,
            major_threshold=self.major_threshold if self.major_interval_s > 0 else 0.0,
            scrub_interval_s=self.scrub_interval_s or float("inf"),
        )


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS on the bookie's port, for clients that ask for it (start-TLS)."""

    provider_factory: str = setting("tlsProviderFactoryClass", "")
    certificate_file: str = setting("tlsCertificatePath", "")
    key_store_type: str = setting("tlsKeyStoreType", "PEM")
    key_file: str = setting("tlsKeyStore", "")
    key_password_file: str = setting("tlsKeyStorePasswordPath", "")
    trust_store_type: str = setting("tlsTrustStoreType", "PEM")
    trust_certs_file: str = setting("tlsTrustStore", "")
    require_client_certificate: bool = setting("tlsClientAuthentication", False)
    protocols: str = setting("tlsEnabledProtocols", "")
    ciphers: str = setting("tlsEnabledCipherSuites", "")
    refresh_s: int = setting("tlsCertFilesRefreshDurationSeconds", 0)

    def contexts(self) -> TlsContexts | None:
        """None without `tlsProviderFactoryClass`, as in Apache. Raises ConfigError."""
        if not self.provider_factory:
            return None
        if self.key_password_file:
            raise ConfigError("tlsKeyStorePasswordPath: keys with a password can't be read")
        options = ServerTls(
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            trust_certs_file=self.trust_certs_file,
            protocols=listed(self.protocols),
            ciphers=listed(self.ciphers),
            require_client_certificate=self.require_client_certificate,
        )
        try:
            return TlsContexts(options, refresh_check_s=self.refresh_s or 300)
        except TlsConfigError as error:
            keys = {each.name: each.metadata["key"] for each in fields(self)}
            raise ConfigError(f"{keys[error.field]}: {error.reason}") from error


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """What else runs in the process."""

    auto_recovery: bool = setting("autoRecoveryDaemonEnabled", False)


@dataclass(frozen=True, slots=True)
class IntegrityConfig:
    """Starts without all disks; Apache takes both keys too."""

    checks: bool = setting("dataIntegrityChecking", False)
    stamps_missing_cookies: bool = setting("dataIntegrityStampMissingCookies", False)


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP port, for metrics and probes."""

    enabled: bool = setting("httpServerEnabled", False)
    host: str = setting("httpServerHost", "0.0.0.0")
    port: int = setting("httpServerPort", 8080, at_least=0, at_most=65535)


@dataclass(frozen=True, slots=True)
class BookieConfig:
    """All settings of one bookie."""

    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    directories: DirectoryConfig = field(default_factory=DirectoryConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    auto_recovery: AutoRecoveryOptions = field(default_factory=AutoRecoveryOptions)
    racks: RackConfig = field(default_factory=RackConfig)
    integrity: IntegrityConfig = field(default_factory=IntegrityConfig)
    http: HttpConfig = field(default_factory=HttpConfig)

    def values(self) -> dict[str, str]:
        """Every setting under Apache's key, as in a file."""
        return written(self)

    def endpoint(self) -> Endpoint:
        """The bookie's id and addresses. Raises ConfigError."""
        network = self.network
        return resolve(
            network.port,
            bookie_id=network.bookie_id,
            advertised_address=network.advertised_address,
            interface=network.listening_interface,
            allow_loopback=network.allow_loopback,
            by_name=network.host_name_as_id,
        )

    def bookie_options(self, bookie_id: str) -> BookieOptions:
        """The storage's part. Raises ConfigError."""
        where, storage = self.directories, self.storage
        if not (journals := listed(where.journals) or listed(where.journal)):
            raise ConfigError("journalDirectories: must be set")
        if not (ledgers := listed(where.ledgers)):
            raise ConfigError("ledgerDirectories: must be set")
        indexes = listed(where.indexes)
        if indexes and len(indexes) != len(ledgers):
            raise ConfigError("indexDirectories: there must be as many as ledgerDirectories")
        directories = [[Path(each).resolve() for each in kind] for kind in (journals, ledgers)]
        index_dirs = [Path(each).resolve() for each in indexes]
        if index_dirs == directories[1]:
            index_dirs = []  # their default; locked once
        _check_distinct([*directories[0], *directories[1], *index_dirs])
        read_threads = storage.read_threads or 1
        return BookieOptions(
            bookie_id=bookie_id,
            journal_dirs=directories[0],
            ledger_dirs=directories[1],
            index_dirs=index_dirs,
            write_cache_bytes=storage.write_cache_mb * MIB,
            read_cache_bytes=storage.read_cache_mb * MIB,
            read_ahead_entries=storage.read_ahead_entries,
            read_threads=read_threads,
            waiting_reads_max=storage.waiting_reads_max * read_threads,
            waiting_adds_max=storage.waiting_adds_max * storage.add_threads or None,
            throttle_max_s=storage.throttle_max_ms / 1000,
            flush_interval_s=storage.flush_interval_ms / 1000,
            entry_log_bytes_max=storage.entry_log_bytes,
            replicas_elsewhere=True,
            heals_lost_disks=self.integrity.checks and self.integrity.stamps_missing_cookies,
            journal=JournalOptions(
                sync_data=storage.journal_sync,
                segment_bytes=storage.journal_file_mb * MIB,
                backups_max=storage.journal_backups,
                drops_cached=storage.journal_drops_cached and storage.journal_drops_from_cache,
            ),
            gc=storage.gc(),
            disk=where.disk(),
        )

    def server_options(self, host: str) -> BookieServerOptions:
        """The server's part. Raises ConfigError."""
        network = self.network
        return BookieServerOptions(
            host,
            network.port,
            network.limits(),
            unfinished_bytes_max=network.unfinished_bytes_max,
            waiting_bytes_max=network.waiting_bytes_max,
            answers_bytes_max=network.answers_bytes_max,
            tls=self.tls.contexts(),
            auth=self.security.auth(self.values()),
        )

    def remote_options(self) -> RemoteOptions:
        """Auto-recovery's part. Raises ConfigError."""
        frame_bytes_max, certificate = self.network.frame_bytes_max, self.tls.certificate_file
        return self.remote.options(frame_bytes_max, self.values(), certificate)


def _check_distinct(directories: Sequence[Path]) -> None:
    """Raises ConfigError."""
    for number, each in enumerate(directories):
        if each in directories[:number]:
            raise ConfigError(
                "journalDirectories, ledgerDirectories, indexDirectories: "
                f"{each} is there twice; each needs a directory of its own"
            )


def load_config(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> BookieConfig:
    """The configuration by Apache's keys: a file, the environment, overrides. Unused keys are
    logged in one warning. Raises ConfigError.
    """
    values = gather(path, environment, overrides)
    config = build(BookieConfig, values, "bookie")
    _check(config, values)
    return config


def _check(config: BookieConfig, values: Origins) -> None:
    # Without an interface of its own the bookie listens at all addresses.
    shares_address = not config.network.listening_interface or config.http.host in ("", "0.0.0.0")
    if config.http.enabled and shares_address:
        check_ports_differ({"bookiePort": config.network.port, "httpServerPort": config.http.port})
    texts = config.values()
    if config.tls.provider_factory:
        for key in ("tlsKeyStoreType", "tlsTrustStoreType"):
            check_choice(values, key, texts[key], ("PEM",))

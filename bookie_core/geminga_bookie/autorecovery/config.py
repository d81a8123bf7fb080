"""The configuration of `geminga autorecovery`: keys of Apache's `bookkeeper.conf` (spec BK-26)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from geminga_bookie.autorecovery.options import AutoRecoveryOptions, RackConfig
from geminga_bookie.process.address import check_id
from geminga_bookie.process.config import MIB, HttpConfig, MetadataConfig
from geminga_bookie.process.security import RemoteConfig
from geminga_bookie.wire.options import RemoteOptions
from geminga_runtime.settings import build, gather, setting, written


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """What the daemon is called, and the frames of bookies."""

    bookie_id: str = setting("bookieId", "")
    advertised_address: str = setting("advertisedAddress", "")
    port: int = setting("bookiePort", 3181, at_least=1, at_most=65535)
    frame_bytes_max: int = setting(
        "nettyMaxFrameSizeBytes", 5 * MIB + 10 * 1024, at_least=1024, at_most=1 << 30
    )

    tls_provider: str = setting("tlsProviderFactoryClass", "")
    certificate_file: str = setting("tlsCertificatePath", "")

    def owner(self) -> str:
        """Id in locks and votes, as Apache's daemon has it. Raises ConfigError."""
        check_id("bookieId", self.bookie_id)
        check_id("advertisedAddress", self.advertised_address)
        return self.bookie_id or f"{self.advertised_address or _own_address()}:{self.port}"


def _own_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:
        return name


@dataclass(frozen=True, slots=True)
class AutoRecoveryConfig:
    """All settings of the daemon."""

    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
    options: AutoRecoveryOptions = field(default_factory=AutoRecoveryOptions)
    racks: RackConfig = field(default_factory=RackConfig)
    http: HttpConfig = field(default_factory=HttpConfig)

    def remote_options(self) -> RemoteOptions:
        """How it speaks to bookies. Raises ConfigError."""
        daemon = self.daemon
        return self.remote.options(daemon.frame_bytes_max, written(self), daemon.certificate_file)


def load_config(
    path: Path | None, environment: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> AutoRecoveryConfig:
    """The configuration by Apache's keys: a file, the environment, overrides. Raises
    ConfigError.
    """
    return build(AutoRecoveryConfig, gather(path, environment, overrides), "autorecovery")

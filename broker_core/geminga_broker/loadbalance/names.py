"""Names of bundles, and of namespaces that belong to one broker (spec CL-08).

Apache's LoadManagerShared and NamespaceService.
"""

from __future__ import annotations

import re
from collections.abc import Container

SYSTEM_NAMESPACE = "pulsar/system"
SYSTEM_TENANTS = ("pulsar/", "sla-monitor/")
"""How the names of the system's namespaces begin; others' may, too."""

_BROKER = r"((?:[^:/\[\]]+|\[[^/\[\]]+\]):\d+)"
_HEARTBEAT = re.compile(rf"pulsar/(?:[^/]+/)?{_BROKER}")
_SLA_MONITOR = re.compile(rf"sla-monitor/[^/]+/{_BROKER}")


def namespace_of(bundle: str) -> str:
    """`tenant/namespace` of `tenant/namespace/0xlow_0xhigh`; the same of `tenant/namespace/LARGEST`
    and of the older `tenant/cluster/namespace/0xlow_0xhigh`.
    """
    return bundle.rpartition("/")[0]


def range_of(bundle: str) -> str:
    """`0xlow_0xhigh` of `tenant/namespace/0xlow_0xhigh`."""
    return bundle.rpartition("/")[2]


def heartbeat_broker(namespace: str) -> str | None:
    """The broker that a heartbeat namespace names: `pulsar/{broker}`, `pulsar/{cluster}/{broker}`.

    Health checks use it: no other broker may serve it, even if this one is away.
    """
    match = _HEARTBEAT.fullmatch(namespace)
    return match[1] if match else None


def monitored_broker(namespace: str) -> str | None:
    """The broker that an SLA-monitor namespace names: `sla-monitor/{cluster}/{broker}`."""
    match = _SLA_MONITOR.fullmatch(namespace)
    return match[1] if match else None


def fixed_broker(namespace: str, active: Container[str]) -> str | None:
    """The only broker that may serve the namespace; None if the load decides.

    The namespace of an SLA monitor is served by any broker while the one it names isn't active
    (Apache's NamespaceService.getHeartbeatOrSLAMonitorBrokerId).
    """
    if broker := heartbeat_broker(namespace):
        return broker
    broker = monitored_broker(namespace)
    return broker if broker is not None and broker in active else None


def is_system(namespace: str) -> bool:
    """Whether it is `pulsar/system`, of heartbeats or of SLA monitors: its bundles are not shed
    (Apache's NamespaceService.isSystemServiceNamespace).
    """
    if not namespace.startswith(SYSTEM_TENANTS):
        return False
    return (
        namespace == SYSTEM_NAMESPACE
        or heartbeat_broker(namespace) is not None
        or monitored_broker(namespace) is not None
    )

"""The metadata of a new cluster (spec CL-02; Apache's PulsarClusterMetadataSetup).

Each node is made if it is absent, so that a set-up that was interrupted is finished by the next
one, and a second cluster joins the configuration store of the first.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from geminga_broker.cluster.namespaces import Bundles, Namespaces, new_policies
from geminga_broker.cluster.records import JsonObject, Records, ResourceExists, check_name
from geminga_protocol.bookkeeper import paths
from geminga_protocol.encode import varint
from geminga_runtime.metadata.api import MUST_NOT_EXIST, BadVersion, MetadataStore

BUNDLES = 16
TRANSACTION_COORDINATORS = 16
STORAGE_CONTAINERS = 16
_SYSTEM = "pulsar/system"
_COORDINATORS = f"{_SYSTEM}/persistent/transaction_coordinator_assign"


@dataclass(frozen=True, slots=True)
class ClusterSetup:
    """What is written of a new cluster; an empty text is absent.

    `ledger_servers` are the hosts of the local store, `ledger_chroot` its chroot: the log of
    BookKeeper's stream storage names them. Without `with_bookkeeper` nothing of BookKeeper's is
    made, because the ledgers are in another cluster.
    """

    cluster: str
    web_url: str
    web_url_tls: str = ""
    broker_url: str = ""
    broker_url_tls: str = ""
    proxy_url: str = ""
    proxy_protocol: str = ""
    auth_plugin: str = ""
    auth_parameters: str = ""
    tls_enabled: bool = False
    bundles: int = BUNDLES
    """Of public/default."""
    transaction_coordinators: int = TRANSACTION_COORDINATORS
    storage_containers: int = STORAGE_CONTAINERS
    with_bookkeeper: bool = True
    ledger_servers: str = ""
    ledger_chroot: str = ""

    def record(self) -> JsonObject:
        """Apache's ClusterData."""
        texts = {
            "serviceUrl": self.web_url,
            "serviceUrlTls": self.web_url_tls,
            "brokerServiceUrl": self.broker_url,
            "brokerServiceUrlTls": self.broker_url_tls,
            "proxyServiceUrl": self.proxy_url,
            "authenticationPlugin": self.auth_plugin,
            "authenticationParameters": self.auth_parameters,
            "proxyProtocol": self.proxy_protocol,
        }
        return {key: text for key, text in texts.items() if text} | _client_settings(
            self.tls_enabled
        )


def _client_settings(tls_enabled: bool) -> JsonObject:
    return {
        "brokerClientTlsEnabled": tls_enabled,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    }


async def set_up_cluster(
    local: MetadataStore, configuration: MetadataStore, setup: ClusterSetup
) -> list[str]:
    """Make the nodes of a cluster in its own store and in the one that clusters share.

    An existing cluster is left as it is; returns the keys of its record that differ. Raises
    BadName, MetadataError.
    """
    check_name(setup.cluster)
    if setup.with_bookkeeper:
        for path, value in _bookkeeper_nodes(setup):
            await _make(local, path, value)
    await _make(local, "/bookies", b"{}")
    namespaces = Namespaces(configuration)
    for cluster, record in ((setup.cluster, setup.record()), ("global", _client_settings(False))):
        try:
            await namespaces.clusters.create(cluster, record)
        except ResourceExists:
            pass
    for namespace, bundles in (("public/default", setup.bundles), (_SYSTEM, BUNDLES)):
        await _join_tenant(namespaces, namespace.partition("/")[0], setup.cluster)
        await _join_namespace(namespaces, namespace, bundles, setup.cluster)
    await _make_coordinators(namespaces, setup.transaction_coordinators)
    wanted, found = setup.record(), await namespaces.clusters.get(setup.cluster) or {}
    return [key for key, value in wanted.items() if found.get(key) != value]


async def _make(store: MetadataStore, path: str, value: bytes) -> None:
    try:
        await store.put(path, value, MUST_NOT_EXIST)
    except BadVersion:  # it is there
        pass


def _bookkeeper_nodes(setup: ClusterSetup) -> Sequence[tuple[str, bytes]]:
    """Nodes of bookies (BookKeeper's `initnewcluster`), then of its stream storage. The instance's
    id is the last of the bookies': they refuse a store without it.
    """
    log = _log_binding(setup)
    bookies = (
        (f"{paths.ROOT}/available/readonly", b""),
        (f"{paths.ROOT}/INSTANCEID", str(uuid.uuid4()).encode()),
    )
    storage = (
        ("/stream/servers/available", b""),
        ("/stream/assignment", b""),
        ("/stream/metadata", b"\x08" + varint(setup.storage_containers)),
        ("/stream/storage", log),
    )
    return (*bookies, *(storage if setup.storage_containers else ()), ("/pulsar/functions", log))


def _log_binding(setup: ClusterSetup) -> bytes:
    """DistributedLog's DLMetadata: where a log keeps its ledgers, as a Thrift struct in JSON."""
    servers, ledgers = {"str": setup.ledger_servers}, {"str": setup.ledger_chroot + paths.ROOT}
    fields = {"1": servers, "2": ledgers, "3": {"tf": 1}, "4": {"tf": 0}}
    return b"1\nBKDL\n" + msgspec.json.encode(fields | {"5": servers, "6": servers, "7": servers})


async def _join_tenant(namespaces: Namespaces, tenant: str, cluster: str) -> None:
    try:
        await namespaces.create_tenant(tenant, (), (cluster,))
    except ResourceExists:
        await _change(
            namespaces.tenants, tenant, lambda old: _added(old, "allowedClusters", cluster)
        )


async def _join_namespace(
    namespaces: Namespaces, namespace: str, bundles: int, cluster: str
) -> None:
    """Only the policies: the first broker cuts the local bundles out of them."""
    policies = new_policies(Bundles.even(bundles), (cluster,))
    try:
        await namespaces.tenants.create(namespace, policies)
    except ResourceExists:
        await _change(
            namespaces.tenants,
            namespace,
            lambda old: _added(old, "replication_clusters", cluster),
        )


def _added(record: JsonObject, key: str, cluster: str) -> JsonObject:
    known = record.get(key)
    clusters = list(known) if isinstance(known, list) else []
    return record if cluster in clusters else record | {key: [*clusters, cluster]}


async def _make_coordinators(namespaces: Namespaces, count: int) -> None:
    """The partitioned topic whose partitions' owners coordinate transactions; it may grow."""

    def grown(old: JsonObject) -> JsonObject:
        partitions = old.get("partitions")
        return old | {"partitions": max(count, partitions if isinstance(partitions, int) else 0)}

    try:
        await namespaces.partitioned.create(_COORDINATORS, {"partitions": count, "deleted": False})
    except ResourceExists:
        await _change(namespaces.partitioned, _COORDINATORS, grown)


async def _change(records: Records, name: str, change: Callable[[JsonObject], JsonObject]) -> None:
    """Change a record, unless it is so already: brokers watch it."""
    record = await records.get(name)
    if record is None or change(record) != record:
        await records.update(name, change)

"""`geminga admin clusters` (Apache's CmdClusters)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from geminga._admin.families.brokers import Brokers
from geminga._admin.families.clusters import Clusters
from geminga._admin.families.namespaces import Namespaces
from geminga._admin.families.tenants import Tenants
from geminga._admin.families.topics import Topics
from geminga.cli.admin.declare import Command, Option, Values, flag, listed, text

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

_DATA = {
    "service_url": ("--url", "serviceUrl", "Web service."),
    "service_url_tls": ("--url-secure", "serviceUrlTls", "Web service by TLS."),
    "broker_url": ("--broker-url", "brokerServiceUrl", "Binary protocol."),
    "broker_url_tls": ("--broker-url-secure", "brokerServiceUrlTls", "Binary protocol by TLS."),
    "proxy_url": ("--proxy-url", "proxyServiceUrl", "Proxy before the brokers."),
    "auth_plugin": ("--auth-plugin", "authenticationPlugin", "Class of the credentials."),
    "auth_params": ("--auth-parameters", "authenticationParameters", "Credentials."),
    "proxy_protocol": ("--proxy-protocol", "proxyProtocol", "SNI."),
    "trust_store_type": ("--tls-trust-store-type", "brokerClientTlsTrustStoreType", ""),
    "trust_store": ("--tls-trust-store", "brokerClientTlsTrustStore", ""),
    "trust_store_pwd": ("--tls-trust-store-pwd", "brokerClientTlsTrustStorePassword", ""),
    "key_store_type": ("--tls-key-store-type", "brokerClientTlsKeyStoreType", ""),
    "key_store": ("--tls-key-store", "brokerClientTlsKeyStore", ""),
    "key_store_pwd": ("--tls-key-store-pwd", "brokerClientTlsKeyStorePassword", ""),
    "trust_certs": ("--tls-trust-certs-filepath", "brokerClientTrustCertsFilePath", ""),
    "key_file": ("--tls-key-filepath", "brokerClientKeyFilePath", ""),
    "certs_file": ("--tls-certs-filepath", "brokerClientCertificateFilePath", ""),
    "ssl_factory": ("--tls-factory-plugin", "brokerClientSslFactoryPlugin", ""),
    "ssl_factory_params": ("--tls-factory-plugin-params", "brokerClientSslFactoryPluginParams", ""),
    "listener_name": ("--listener-name", "listenerName", "Listener that brokers advertise."),
}
"""By parameter: option, member of ClusterData, help."""
_FLAGS = {
    "tls": ("--tls-enable", "brokerClientTlsEnabled", "Brokers of other clusters use TLS."),
    "allow_insecure": ("--tls-allow-insecure", "tlsAllowInsecureConnection", ""),
    "key_store_tls": ("--tls-enable-keystore", "brokerClientTlsEnabledWithKeyStore", ""),
}
_OPTIONS = (
    *(text(names, to, about) for to, (names, _, about) in _DATA.items()),
    *(flag(names, to, about) for to, (names, _, about) in _FLAGS.items()),
    text("--cluster-config-file", "config_file", "A file with the cluster's data as JSON."),
)
_DOMAIN = text("--domain-name", "domain", "Name of the failure domain.", required=True)
_BROKERS = listed("--broker-list", "brokers", "Brokers of the domain.")


def _data(values: Values) -> Values:
    """A cluster's data, of the file and above it of the options."""
    data: dict[str, object] = {}
    path = values.pop("config_file")
    if path is not None:
        try:
            with open(str(path), encoding="utf-8") as file:
                data = json.load(file)
        except (OSError, ValueError) as error:
            raise click.UsageError(f"--cluster-config-file: {error}") from None
    for to, (_, member, _) in [*_DATA.items(), *_FLAGS.items()]:
        value = values.pop(to)
        if value:
            data[member] = value
    return {"cluster": values["cluster"], "data": data}


def _list(calls: Calls, values: Values) -> object:
    """The clusters; with --current that of the brokers is marked."""
    clusters = calls.call(Clusters.list)
    if not values["current"] or not isinstance(clusters, list):
        return clusters
    settings = calls.call(Brokers.get_runtime_configuration)
    own = settings.get("clusterName") if isinstance(settings, dict) else None
    return [f"{name}(*)" if name == own else name for name in clusters]


def _delete(calls: Calls, values: Values) -> object:
    """With --all its tenants and all that they have go first."""
    cluster = values["cluster"]
    if values["all"]:
        for tenant in _names(calls.call(Tenants.list)):
            info = calls.call(Tenants.get, tenant=tenant)
            if isinstance(info, dict) and cluster in info.get("allowedClusters", []):
                _delete_tenant(calls, tenant)
    return calls.call(Clusters.delete, cluster=cluster)


def _delete_tenant(calls: Calls, tenant: str) -> None:
    for namespace in _names(calls.call(Namespaces.list, tenant=tenant)):
        for domain in ("persistent", "non-persistent"):
            given = {"namespace": namespace, "domain": domain}
            for topic in _names(calls.call(Topics.list_partitioned, **given)):
                calls.call(Topics.delete_partitioned, topic=topic, force=True)
            for topic in _names(calls.call(Topics.list, **given)):
                calls.call(Topics.delete, topic=topic, force=True)
        calls.call(Namespaces.delete, namespace=namespace)
    calls.call(Tenants.delete, tenant=tenant)


def _names(answer: object) -> list[str]:
    return [str(each) for each in answer] if isinstance(answer, list) else []


def _domain(values: Values) -> Values:
    return {**values, "brokers": {"brokers": values["brokers"] or []}}


def _migration(values: Values) -> Values:
    members = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")
    keys = ("url", "url_tls", "broker_url", "broker_url_tls")
    urls = {member: values[key] for member, key in zip(members, keys, strict=True)}
    return {"cluster": values["cluster"], "migrated": values["migrated"], "url": urls}


COMMANDS = (
    Command(
        "list", "List the clusters.", None, "",
        (flag("-c --current", "current", "Mark the brokers' own with (*)."),),
        run=_list, is_read=True,
    ),
    Command("get", "Show how a cluster is reached.", Clusters.get, "cluster"),
    Command("create", "Make a cluster known.", Clusters.create, "cluster", _OPTIONS, make=_data),
    Command("update", "Replace how it is reached.", Clusters.update, "cluster", _OPTIONS,
            make=_data),
    Command(
        "delete", "Forget a cluster.", None, "cluster",
        (flag("-a --all", "all", "Delete the tenants that use it, too."),), run=_delete,
    ),
    Command("get-peer-clusters", "List the clusters that take over.", Clusters.get_peers,
            "cluster"),
    Command(
        "update-peer-clusters", "Replace the clusters that take over.", Clusters.update_peers,
        "cluster", (Option("--peer-clusters", "peers", "list", required=True, help="A,B; \"\" "
                           "for none."),),
        make=lambda values: {**values, "peers": values["peers"] or []},
    ),
    Command("get-cluster-migration", "Show whether it was moved.", Clusters.get_migration,
            "cluster"),
    Command(
        "update-cluster-migration", "Send its clients to another cluster.",
        Clusters.update_migration, "cluster",
        (
            flag("--migrated", "migrated", "Whether it was moved."),
            text("--service-url", "url", "Web service of the other one."),
            text("--service-url-secure", "url_tls", "The same by TLS."),
            text("--broker-url", "broker_url", "Binary protocol of the other one."),
            text("--broker-url-secure", "broker_url_tls", "The same by TLS."),
        ),
        make=_migration,
    ),
    Command("list-failure-domains", "List the failure domains.", Clusters.list_failure_domains,
            "cluster"),
    Command("get-failure-domain", "Show a failure domain.", Clusters.get_failure_domain, "cluster",
            (_DOMAIN,)),
    Command("create-failure-domain", "Create a failure domain.", Clusters.set_failure_domain,
            "cluster", (_DOMAIN, _BROKERS), make=_domain),
    Command("update-failure-domain", "Replace a domain's brokers.", Clusters.set_failure_domain,
            "cluster", (_DOMAIN, _BROKERS), make=_domain),
    Command("delete-failure-domain", "Delete a failure domain.", Clusters.delete_failure_domain,
            "cluster", (_DOMAIN,)),
)  # fmt: skip

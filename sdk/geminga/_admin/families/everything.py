"""All families of operations, as attributes of a client."""

from __future__ import annotations

from geminga._admin.declared import Send
from geminga._admin.families.brokers import (
    Bookies,
    Brokers,
    BrokerStats,
    ProxyStats,
    ResourceGroups,
    ResourceQuotas,
)
from geminga._admin.families.clusters import Clusters, IsolationPolicies
from geminga._admin.families.namespace_policies import NamespacePolicies
from geminga._admin.families.namespaces import Bundles, Namespaces
from geminga._admin.families.subscriptions import Messages, Schemas, Subscriptions
from geminga._admin.families.tenants import Tenants
from geminga._admin.families.topic_policies import TopicPolicies
from geminga._admin.families.topics import Lookups, Stats, Topics


class Families:
    """A client's operations."""

    def __init__(self, send: Send) -> None:
        self.clusters = Clusters(send)
        self.isolation_policies = IsolationPolicies(send)
        self.tenants = Tenants(send)
        self.namespaces = Namespaces(send)
        self.bundles = Bundles(send)
        self.namespace_policies = NamespacePolicies(send)
        self.topics = Topics(send)
        self.topic_policies = TopicPolicies(send)
        self.stats = Stats(send)
        self.subscriptions = Subscriptions(send)
        self.messages = Messages(send)
        self.schemas = Schemas(send)
        self.lookups = Lookups(send)
        self.brokers = Brokers(send)
        self.broker_stats = BrokerStats(send)
        self.proxy_stats = ProxyStats(send)
        self.bookies = Bookies(send)
        self.resource_quotas = ResourceQuotas(send)
        self.resource_groups = ResourceGroups(send)

"""An admin client: Pulsar's admin REST, typed (spec SDK-48).

Made by tools/faces.py: don't edit.

    async with geminga.admin.connect("http://localhost:8080") as admin:
        await admin.topics.create_partitioned("orders", 4)
        stats = await admin.stats.get_partitioned("orders")
        await admin.namespace_policies.message_ttl.set("public/default", 3600)

The names in `__all__` are public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga._options.lazy import lazily

if TYPE_CHECKING:
    from geminga._admin.client import AdminClient as AdminClient
    from geminga._admin.client import connect as connect
    from geminga._admin.errors import AdminError as AdminError
    from geminga._admin.errors import BadRequestError as BadRequestError
    from geminga._admin.errors import ConflictError as ConflictError
    from geminga._admin.errors import NotAllowedError as NotAllowedError
    from geminga._admin.errors import NotAuthorizedError as NotAuthorizedError
    from geminga._admin.errors import NotFoundError as NotFoundError
    from geminga._admin.errors import PreconditionFailedError as PreconditionFailedError
    from geminga._admin.errors import RequestTimeoutError as RequestTimeoutError
    from geminga._admin.errors import ServerError as ServerError
    from geminga._admin.errors import UnavailableError as UnavailableError
    from geminga._admin.errors import UnreachableError as UnreachableError
    from geminga._admin.families.brokers import Bookies as Bookies
    from geminga._admin.families.brokers import Brokers as Brokers
    from geminga._admin.families.brokers import BrokerStats as BrokerStats
    from geminga._admin.families.brokers import ProxyStats as ProxyStats
    from geminga._admin.families.brokers import ResourceGroups as ResourceGroups
    from geminga._admin.families.brokers import ResourceQuotas as ResourceQuotas
    from geminga._admin.families.clusters import Clusters as Clusters
    from geminga._admin.families.clusters import IsolationPolicies as IsolationPolicies
    from geminga._admin.families.namespace_policies import NamespacePolicies as NamespacePolicies
    from geminga._admin.families.namespaces import Bundles as Bundles
    from geminga._admin.families.namespaces import Namespaces as Namespaces
    from geminga._admin.families.subscriptions import Messages as Messages
    from geminga._admin.families.subscriptions import Schemas as Schemas
    from geminga._admin.families.subscriptions import Subscriptions as Subscriptions
    from geminga._admin.families.tenants import Tenants as Tenants
    from geminga._admin.families.topic_policies import TopicPolicies as TopicPolicies
    from geminga._admin.families.topics import Lookups as Lookups
    from geminga._admin.families.topics import Stats as Stats
    from geminga._admin.families.topics import Topics as Topics
    from geminga._admin.messages import StoredMessage as StoredMessage
    from geminga._admin.model.cluster import AuthAction as AuthAction
    from geminga._admin.model.cluster import AutoFailoverPolicy as AutoFailoverPolicy
    from geminga._admin.model.cluster import BookieId as BookieId
    from geminga._admin.model.cluster import BookieInfo as BookieInfo
    from geminga._admin.model.cluster import BookiesClusterInfo as BookiesClusterInfo
    from geminga._admin.model.cluster import BookieSpace as BookieSpace
    from geminga._admin.model.cluster import BrokerInfo as BrokerInfo
    from geminga._admin.model.cluster import (
        BrokerNamespaceIsolationData as BrokerNamespaceIsolationData,
    )
    from geminga._admin.model.cluster import ClusterData as ClusterData
    from geminga._admin.model.cluster import ClusterPolicies as ClusterPolicies
    from geminga._admin.model.cluster import ClusterUrl as ClusterUrl
    from geminga._admin.model.cluster import FailureDomain as FailureDomain
    from geminga._admin.model.cluster import InternalConfigurationData as InternalConfigurationData
    from geminga._admin.model.cluster import LookupData as LookupData
    from geminga._admin.model.cluster import Metrics as Metrics
    from geminga._admin.model.cluster import NamespaceIsolationData as NamespaceIsolationData
    from geminga._admin.model.cluster import NamespaceOwnershipStatus as NamespaceOwnershipStatus
    from geminga._admin.model.cluster import ProxyConnectionStats as ProxyConnectionStats
    from geminga._admin.model.cluster import ProxyTopicStats as ProxyTopicStats
    from geminga._admin.model.cluster import ResourceGroup as ResourceGroup
    from geminga._admin.model.cluster import ResourceQuota as ResourceQuota
    from geminga._admin.model.cluster import TenantInfo as TenantInfo
    from geminga._admin.model.cluster import TopicHashPositions as TopicHashPositions
    from geminga._admin.model.policies import AuthPolicies as AuthPolicies
    from geminga._admin.model.policies import (
        AutoSubscriptionCreationOverride as AutoSubscriptionCreationOverride,
    )
    from geminga._admin.model.policies import AutoTopicCreationOverride as AutoTopicCreationOverride
    from geminga._admin.model.policies import BacklogQuota as BacklogQuota
    from geminga._admin.model.policies import BacklogQuotaPolicy as BacklogQuotaPolicy
    from geminga._admin.model.policies import BacklogQuotaType as BacklogQuotaType
    from geminga._admin.model.policies import BookieAffinityGroupData as BookieAffinityGroupData
    from geminga._admin.model.policies import BundlesData as BundlesData
    from geminga._admin.model.policies import DelayedDeliveryPolicies as DelayedDeliveryPolicies
    from geminga._admin.model.policies import DispatchRate as DispatchRate
    from geminga._admin.model.policies import EntryFilters as EntryFilters
    from geminga._admin.model.policies import InactiveTopicDeleteMode as InactiveTopicDeleteMode
    from geminga._admin.model.policies import InactiveTopicPolicies as InactiveTopicPolicies
    from geminga._admin.model.policies import NewNamespace as NewNamespace
    from geminga._admin.model.policies import OffloadPolicies as OffloadPolicies
    from geminga._admin.model.policies import PersistencePolicies as PersistencePolicies
    from geminga._admin.model.policies import Policies as Policies
    from geminga._admin.model.policies import PublishRate as PublishRate
    from geminga._admin.model.policies import RetentionPolicies as RetentionPolicies
    from geminga._admin.model.policies import (
        SchemaAutoUpdateCompatibilityStrategy as SchemaAutoUpdateCompatibilityStrategy,
    )
    from geminga._admin.model.policies import (
        SchemaCompatibilityStrategy as SchemaCompatibilityStrategy,
    )
    from geminga._admin.model.policies import SubscribeRate as SubscribeRate
    from geminga._admin.model.policies import SubscriptionAuthMode as SubscriptionAuthMode
    from geminga._admin.model.policies import SubscriptionType as SubscriptionType
    from geminga._admin.model.schemas import (
        GetAllVersionsSchemaResponse as GetAllVersionsSchemaResponse,
    )
    from geminga._admin.model.schemas import GetSchemaResponse as GetSchemaResponse
    from geminga._admin.model.schemas import IsCompatibilityResponse as IsCompatibilityResponse
    from geminga._admin.model.schemas import PostSchemaPayload as PostSchemaPayload
    from geminga._admin.model.schemas import SchemaMetadata as SchemaMetadata
    from geminga._admin.model.schemas import SchemaMetadataEntry as SchemaMetadataEntry
    from geminga._admin.model.schemas import SchemaVersion as SchemaVersion
    from geminga._admin.model.stats import (
        AnalyzeSubscriptionBacklogResult as AnalyzeSubscriptionBacklogResult,
    )
    from geminga._admin.model.stats import CompactionStats as CompactionStats
    from geminga._admin.model.stats import ConsumerStats as ConsumerStats
    from geminga._admin.model.stats import CursorStats as CursorStats
    from geminga._admin.model.stats import DrainingHash as DrainingHash
    from geminga._admin.model.stats import Finding as Finding
    from geminga._admin.model.stats import LedgerInfo as LedgerInfo
    from geminga._admin.model.stats import LongRunningProcessStatus as LongRunningProcessStatus
    from geminga._admin.model.stats import OffloadProcessStatus as OffloadProcessStatus
    from geminga._admin.model.stats import (
        PartitionedTopicInternalStats as PartitionedTopicInternalStats,
    )
    from geminga._admin.model.stats import PartitionedTopicMetadata as PartitionedTopicMetadata
    from geminga._admin.model.stats import PartitionedTopicStats as PartitionedTopicStats
    from geminga._admin.model.stats import (
        PersistentTopicInternalStats as PersistentTopicInternalStats,
    )
    from geminga._admin.model.stats import Position as Position
    from geminga._admin.model.stats import PublisherStats as PublisherStats
    from geminga._admin.model.stats import ReplicatorStats as ReplicatorStats
    from geminga._admin.model.stats import SubscriptionStats as SubscriptionStats
    from geminga._admin.model.stats import TopicStats as TopicStats
    from geminga._admin.model.topics import EARLIEST as EARLIEST
    from geminga._admin.model.topics import LATEST as LATEST
    from geminga._admin.model.topics import GrantTopicPermission as GrantTopicPermission
    from geminga._admin.model.topics import ResetCursorData as ResetCursorData
    from geminga._admin.model.topics import RevokeTopicPermission as RevokeTopicPermission
    from geminga._admin.model.topics import SplitAlgorithm as SplitAlgorithm
    from geminga._admin.model.topics import TopicDomain as TopicDomain
    from geminga._admin.model.topics import TopicMode as TopicMode
    from geminga._admin.options import AdminOptions as AdminOptions
    from geminga._admin.policies import NamespacePolicy as NamespacePolicy
    from geminga._admin.policies import NamespaceSetting as NamespaceSetting
    from geminga._admin.policies import TopicPolicy as TopicPolicy
    from geminga._admin.policies import TopicSetting as TopicSetting

__all__ = [
    "AdminClient",
    "AdminError",
    "AdminOptions",
    "AnalyzeSubscriptionBacklogResult",
    "AuthAction",
    "AuthPolicies",
    "AutoFailoverPolicy",
    "AutoSubscriptionCreationOverride",
    "AutoTopicCreationOverride",
    "BacklogQuota",
    "BacklogQuotaPolicy",
    "BacklogQuotaType",
    "BadRequestError",
    "BookieAffinityGroupData",
    "BookieId",
    "BookieInfo",
    "BookieSpace",
    "Bookies",
    "BookiesClusterInfo",
    "BrokerInfo",
    "BrokerNamespaceIsolationData",
    "BrokerStats",
    "Brokers",
    "Bundles",
    "BundlesData",
    "ClusterData",
    "ClusterPolicies",
    "ClusterUrl",
    "Clusters",
    "CompactionStats",
    "ConflictError",
    "ConsumerStats",
    "CursorStats",
    "DelayedDeliveryPolicies",
    "DispatchRate",
    "DrainingHash",
    "EARLIEST",
    "EntryFilters",
    "FailureDomain",
    "Finding",
    "GetAllVersionsSchemaResponse",
    "GetSchemaResponse",
    "GrantTopicPermission",
    "InactiveTopicDeleteMode",
    "InactiveTopicPolicies",
    "InternalConfigurationData",
    "IsCompatibilityResponse",
    "IsolationPolicies",
    "LATEST",
    "LedgerInfo",
    "LongRunningProcessStatus",
    "LookupData",
    "Lookups",
    "Messages",
    "Metrics",
    "NamespaceIsolationData",
    "NamespaceOwnershipStatus",
    "NamespacePolicies",
    "NamespacePolicy",
    "NamespaceSetting",
    "Namespaces",
    "NewNamespace",
    "NotAllowedError",
    "NotAuthorizedError",
    "NotFoundError",
    "OffloadPolicies",
    "OffloadProcessStatus",
    "PartitionedTopicInternalStats",
    "PartitionedTopicMetadata",
    "PartitionedTopicStats",
    "PersistencePolicies",
    "PersistentTopicInternalStats",
    "Policies",
    "Position",
    "PostSchemaPayload",
    "PreconditionFailedError",
    "ProxyConnectionStats",
    "ProxyStats",
    "ProxyTopicStats",
    "PublishRate",
    "PublisherStats",
    "ReplicatorStats",
    "RequestTimeoutError",
    "ResetCursorData",
    "ResourceGroup",
    "ResourceGroups",
    "ResourceQuota",
    "ResourceQuotas",
    "RetentionPolicies",
    "RevokeTopicPermission",
    "SchemaAutoUpdateCompatibilityStrategy",
    "SchemaCompatibilityStrategy",
    "SchemaMetadata",
    "SchemaMetadataEntry",
    "SchemaVersion",
    "Schemas",
    "ServerError",
    "SplitAlgorithm",
    "Stats",
    "StoredMessage",
    "SubscribeRate",
    "SubscriptionAuthMode",
    "SubscriptionStats",
    "SubscriptionType",
    "Subscriptions",
    "TenantInfo",
    "Tenants",
    "TopicDomain",
    "TopicHashPositions",
    "TopicMode",
    "TopicPolicies",
    "TopicPolicy",
    "TopicSetting",
    "TopicStats",
    "Topics",
    "UnavailableError",
    "UnreachableError",
    "connect",
]
_HOMES = {
    "geminga._admin.client": ("AdminClient", "connect"),
    "geminga._admin.errors": (
        *("AdminError", "BadRequestError", "ConflictError", "NotAllowedError"),
        *("NotAuthorizedError", "NotFoundError", "PreconditionFailedError"),
        *("RequestTimeoutError", "ServerError", "UnavailableError"),
        *("UnreachableError",),
    ),
    "geminga._admin.families.brokers": (
        *("Bookies", "BrokerStats", "Brokers", "ProxyStats", "ResourceGroups"),
        *("ResourceQuotas",),
    ),
    "geminga._admin.families.clusters": ("Clusters", "IsolationPolicies"),
    "geminga._admin.families.namespace_policies": ("NamespacePolicies",),
    "geminga._admin.families.namespaces": ("Bundles", "Namespaces"),
    "geminga._admin.families.subscriptions": ("Messages", "Schemas", "Subscriptions"),
    "geminga._admin.families.tenants": ("Tenants",),
    "geminga._admin.families.topic_policies": ("TopicPolicies",),
    "geminga._admin.families.topics": ("Lookups", "Stats", "Topics"),
    "geminga._admin.messages": ("StoredMessage",),
    "geminga._admin.model.cluster": (
        *("AuthAction", "AutoFailoverPolicy", "BookieId", "BookieInfo"),
        *("BookieSpace", "BookiesClusterInfo", "BrokerInfo"),
        *("BrokerNamespaceIsolationData", "ClusterData", "ClusterPolicies"),
        *("ClusterUrl", "FailureDomain", "InternalConfigurationData"),
        *("LookupData", "Metrics", "NamespaceIsolationData"),
        *("NamespaceOwnershipStatus", "ProxyConnectionStats"),
        *("ProxyTopicStats", "ResourceGroup", "ResourceQuota", "TenantInfo"),
        *("TopicHashPositions",),
    ),
    "geminga._admin.model.policies": (
        *("AuthPolicies", "AutoSubscriptionCreationOverride"),
        *("AutoTopicCreationOverride", "BacklogQuota", "BacklogQuotaPolicy"),
        *("BacklogQuotaType", "BookieAffinityGroupData", "BundlesData"),
        *("DelayedDeliveryPolicies", "DispatchRate", "EntryFilters"),
        *("InactiveTopicDeleteMode", "InactiveTopicPolicies", "NewNamespace"),
        *("OffloadPolicies", "PersistencePolicies", "Policies", "PublishRate"),
        *("RetentionPolicies", "SchemaAutoUpdateCompatibilityStrategy"),
        *("SchemaCompatibilityStrategy", "SubscribeRate"),
        *("SubscriptionAuthMode", "SubscriptionType"),
    ),
    "geminga._admin.model.schemas": (
        *("GetAllVersionsSchemaResponse", "GetSchemaResponse"),
        *("IsCompatibilityResponse", "PostSchemaPayload", "SchemaMetadata"),
        *("SchemaMetadataEntry", "SchemaVersion"),
    ),
    "geminga._admin.model.stats": (
        *("AnalyzeSubscriptionBacklogResult", "CompactionStats"),
        *("ConsumerStats", "CursorStats", "DrainingHash", "Finding", "LedgerInfo"),
        *("LongRunningProcessStatus", "OffloadProcessStatus"),
        *("PartitionedTopicInternalStats", "PartitionedTopicMetadata"),
        *("PartitionedTopicStats", "PersistentTopicInternalStats", "Position"),
        *("PublisherStats", "ReplicatorStats", "SubscriptionStats", "TopicStats"),
    ),
    "geminga._admin.model.topics": (
        *("EARLIEST", "GrantTopicPermission", "LATEST", "ResetCursorData"),
        *("RevokeTopicPermission", "SplitAlgorithm", "TopicDomain", "TopicMode"),
    ),
    "geminga._admin.options": ("AdminOptions",),
    "geminga._admin.policies": (
        *("NamespacePolicy", "NamespaceSetting", "TopicPolicy", "TopicSetting"),
    ),
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

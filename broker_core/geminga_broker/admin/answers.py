"""What handlers answer in JSON that they make themselves: objects with Apache's names (spec OP-03).

The description of the interface tells of these, and mypy holds the handlers to them. Answers that
have a type of their own (statistics, policies, records) stand with those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, TypedDict

import msgspec

Actions = dict[str, list[str]]
"""What roles may do."""
BARE_TEXT = Annotated[
    str,
    msgspec.Meta(
        description="The text itself, without quotes, as Apache's server writes it",
        extra_json_schema={"contentMediaType": "text/plain"},
    ),
]
"""The kind of `rest.text_as_json`."""
BYTES = Annotated[
    str,
    msgspec.Meta(
        description="The bytes of a message, whatever the type of content says",
        extra_json_schema={"format": "binary", "contentMediaType": "application/octet-stream"},
    ),
]
"""The kind of a message's payload."""


class BookieId(TypedDict):
    """A registered bookie."""

    bookieId: str


class Bookies(TypedDict):
    """All registered bookies."""

    bookies: list[BookieId]


class Space(TypedDict):
    """Room on the disks of a bookie; 0 of 0 for one in memory. `readOnly` says why it takes no
    writes, and is empty if it does.
    """

    freeBytes: int
    totalBytes: int
    readOnly: str


class OwnershipStatus(TypedDict):
    """How a broker came to own a bundle."""

    broker_assignment: Literal["primary", "secondary", "shared"]
    is_controlled: bool
    is_active: bool


class InternalConfiguration(TypedDict):
    """Where a cluster keeps its metadata."""

    zookeeperServers: str
    configurationStoreServers: str
    metadataStoreUrl: str
    configurationMetadataStoreUrl: str
    ledgersRootPath: str
    bookkeeperMetadataServiceUri: NotRequired[str]


class BrokerInfo(TypedDict):
    """The leader of the brokers."""

    serviceUrl: str
    brokerId: str


class LookupData(TypedDict, total=False):
    """The broker that serves a topic."""

    brokerUrl: str
    brokerUrlTls: str
    httpUrl: str
    httpUrlTls: str
    nativeUrl: str
    brokerUrlSsl: str


class BrokerIsolation(TypedDict):
    """What isolation policies say of a broker."""

    brokerName: str
    policyName: NotRequired[str]
    namespaceRegex: list[str]
    primary: bool


class Figures(TypedDict):
    """Some figures of a broker, and what they are of."""

    metrics: Mapping[str, float | str]
    dimensions: dict[str, str]


class AllocatorStats(TypedDict):
    """Memory that is used, in bytes."""

    numDirectArenas: int
    numHeapArenas: int
    numThreadLocalCaches: int
    normalCacheSize: int
    smallCacheSize: int
    usedDirectMemory: int
    usedHeapMemory: int
    directArenas: list[str]
    heapArenas: list[str]


PendingOperations = dict[str, dict[str, dict[str, int]]]
"""Calls by namespace, topic and kind."""


class Quota(TypedDict):
    """A backlog quota; `limit` is an old name of `limitSize`."""

    limit: int
    limitSize: int
    limitTime: int
    policy: str


class Bundles(TypedDict):
    """A namespace's bundles: hash ranges between neighbouring boundaries."""

    boundaries: list[str]
    numBundles: int


class HashPositions(TypedDict):
    """The hashes of a bundle's topics."""

    namespace: str
    bundle: str
    topicHashPositions: dict[str, int]


class Grants(TypedDict, total=False):
    """What roles may do in a namespace, on single topics, with single subscriptions."""

    namespace_auth: Actions
    destination_auth: dict[str, Actions]
    subscription_auth_roles: dict[str, list[str]]


class SchemaAnswer(TypedDict):
    """A version of a topic's schema."""

    version: int
    type: str
    timestamp: int
    data: str
    properties: dict[str, str]


class SchemaAnswers(TypedDict):
    """All versions of a topic's schema."""

    getSchemaResponses: list[SchemaAnswer]


class SchemaPlace(TypedDict):
    """Where a version of a schema is stored."""

    ledgerId: int
    entryId: int
    version: int


class SchemaMetadata(TypedDict):
    """Where the versions of a schema are stored."""

    info: SchemaPlace
    index: list[SchemaPlace]


class Compatibility(TypedDict):
    """Whether a schema would be taken, and by what rule."""

    schemaCompatibilityStrategy: str
    compatibility: bool


class MessageId(TypedDict):
    """The place of an entry, or of a message in it; -1 stands for none."""

    ledgerId: int
    entryId: int
    partitionIndex: int
    batchIndex: int
    batchSize: int


class Partitioned(TypedDict):
    """How many partitions a topic has; 0 if it is not partitioned."""

    partitions: int
    deleted: bool
    properties: NotRequired[Mapping[str, str]]


class ProcessStatus(TypedDict):
    """Of a compaction: NOT_RUN, RUNNING, SUCCESS or ERROR."""

    status: str
    lastError: str


class OffloadStatus(ProcessStatus):
    """The same of an offload, with the first message that stays in BookKeeper."""

    firstUnoffloadedMessage: MessageId


class Analysis(TypedDict):
    """What a subscription's backlog has; `aborted` if the scan reached the broker's bound."""

    entries: int
    messages: int
    filterRejectedEntries: int
    filterAcceptedEntries: int
    filterRescheduledEntries: int
    filterRejectedMessages: int
    filterAcceptedMessages: int
    filterRescheduledMessages: int
    aborted: bool
    firstMessageId: NotRequired[str]
    lastMessageId: NotRequired[str]


class Place(TypedDict):
    """The position of an entry."""

    ledgerId: int
    entryId: int


StoredRange = TypedDict("StoredRange", {"from": Place, "to": Place})
"""Entries that are acknowledged: from behind the first one to the second one."""


class StoredLedger(TypedDict):
    """A ledger of a topic, as it is stored."""

    ledgerId: int
    entries: NotRequired[int]
    size: NotRequired[int]
    timestamp: NotRequired[int]
    isOffloaded: bool


class Dates(TypedDict):
    """When a record was made and changed."""

    version: int
    creationDate: str
    modificationDate: str


class StoredCursor(Dates):
    """A subscription's position, as it is stored."""

    cursorsLedgerId: int
    markDelete: NotRequired[Place]
    individualDeletedMessages: NotRequired[list[StoredRange]]
    properties: NotRequired[dict[str, int]]


class StoredLog(Dates):
    """A topic's log, as it is stored."""

    ledgers: list[StoredLedger]
    terminatedPosition: NotRequired[Place]
    cursors: dict[str, StoredCursor]
    properties: NotRequired[dict[str, str]]


class StoredLogs(TypedDict):
    """The logs of a topic's partitions, by their names."""

    version: int
    partitions: dict[str, StoredLog]


class CursorBacklog(TypedDict):
    """What a subscription has before it; -1 if that can't be read."""

    cursorBacklog: int
    cursorLedgerId: int


class OfflineBacklog(TypedDict):
    """Entries between the stored places of a topic's subscriptions and its end."""

    storageSize: int
    totalMessages: int
    messageBacklog: int
    brokerName: str
    topicName: str
    dataLedgerDetails: list[str]
    cursorDetails: dict[str, CursorBacklog]
    statGeneratedAt: int


class PublishResult(TypedDict):
    """What came of a message."""

    messageId: str
    errorMsg: NotRequired[str]
    errorCode: int
    schemaVersion: int


class PublishResults(TypedDict):
    """What came of all messages of a request."""

    messagePublishResults: list[PublishResult]
    schemaVersion: int | None


class SchemaVersion(TypedDict):
    """The version of a schema; -1 for none."""

    version: int


class PostedSchema(TypedDict):
    """The version that a posted schema has."""

    version: SchemaVersion


class Migration(TypedDict, total=False):
    """Whether a cluster was moved, and whereto."""

    migrated: bool
    migratedClusterUrl: dict[str, str | bool | None]

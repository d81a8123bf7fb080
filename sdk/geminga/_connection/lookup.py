"""Lookups of a topic's broker and number of partitions (spec SDK-40; BinaryProtoLookupService)."""

from __future__ import annotations

from geminga._connection.access import Access
from geminga._connection.connection import Connection, error_name
from geminga._connection.pool import ConnectionPool, Endpoint
from geminga._connection.service_url import Address, is_trusted, parse_one
from geminga._connection.topic_pattern import TopicPattern
from geminga.errors import ConnectionFailedError, GemingaError, ServiceNotReadyError, from_broker
from geminga.options import ClientOptions, RegexSubscriptionMode
from geminga_protocol.commands import lookup as commands
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)

_MODES = {
    RegexSubscriptionMode.PERSISTENT_ONLY: CommandGetTopicsOfNamespace.PERSISTENT,
    RegexSubscriptionMode.NON_PERSISTENT_ONLY: CommandGetTopicsOfNamespace.NON_PERSISTENT,
    RegexSubscriptionMode.ALL_TOPICS: CommandGetTopicsOfNamespace.ALL,
}


class Lookup:
    """Requests to the brokers of the service URL; if one is unreachable, to the next one."""

    def __init__(
        self,
        access: Access,
        cluster: int,
        options: ClientOptions,
        pool: ConnectionPool,
    ) -> None:
        self._access = access
        self._addresses = access.addresses
        self._cluster = cluster
        self._options = options
        self._pool = pool
        self._at = 0

    @property
    def service_address(self) -> Address:
        """The broker that gets the requests."""
        return self._addresses[self._at]

    def endpoint(self, broker_url: str) -> Endpoint:
        """The cluster's broker with that URL, named by a broker: it gets the credentials.

        Raises InvalidServiceUrlError, and ServiceNotReadyError if it has no TLS though the service
        URL has, or is not in a given `trusted_broker_hosts`.
        """
        address = parse_one(broker_url)
        if self.service_address.tls and not address.tls:
            raise ServiceNotReadyError(f"the lookup names a broker without TLS: {address.url}")
        hosts = self._options.trusted_broker_hosts
        listed = any(address.host == each.host for each in self._addresses)
        if hosts and not listed and not is_trusted(address, hosts):
            raise ServiceNotReadyError(f"{address.url} is not among trusted_broker_hosts")
        return Endpoint(address, cluster=self._cluster)

    async def service_connection(self) -> Connection:
        """A connection to any broker of the service URL. Raises ConnectionFailedError or
        OperationTimeoutError.
        """
        failure: GemingaError | None = None
        for _ in self._addresses:
            try:
                return await self._pool.get(Endpoint(self.service_address, None, self._cluster))
            except (ConnectionFailedError, TimeoutError) as error:
                failure = failure or error  # type: ignore[assignment]
                self._at = (self._at + 1) % len(self._addresses)
        assert failure is not None
        raise failure

    async def broker_of(self, topic: str) -> Endpoint:
        """The broker that serves the topic, following redirects. Raises the brokers' errors."""
        connection = await self.service_connection()
        authoritative = False
        for _ in range(self._options.lookup_redirects_max + 1):
            answer = await self._ask(connection, topic, authoritative)
            if answer.response == CommandLookupTopicResponse.Failed:
                raise from_broker(error_name(answer.error), answer.message, topic)
            service = self.service_address
            url = answer.brokerServiceUrlTls if service.tls else answer.brokerServiceUrl
            if not url:
                raise ServiceNotReadyError("the lookup names no broker", topic=topic)
            if answer.proxy_through_service_url:
                found = Endpoint(service, url.partition("://")[2], self._cluster)
            else:
                found = self.endpoint(url)
            if answer.response == CommandLookupTopicResponse.Connect:
                return found
            authoritative = answer.authoritative
            connection = await self._pool.get(found)
        raise ServiceNotReadyError("the lookup was redirected too often", topic=topic)

    async def _ask(
        self, connection: Connection, topic: str, authoritative: bool
    ) -> CommandLookupTopicResponse:
        answer = await connection.request(
            lambda request_id: commands.lookup(
                topic,
                request_id,
                authoritative=authoritative,
                listener_name=self._options.listener_name,
            ),
            timeout_s=self._options.operation_timeout_s,
            topic=topic,
        )
        return answer.lookupTopicResponse

    async def topics_of(
        self, pattern: TopicPattern, mode: RegexSubscriptionMode
    ) -> tuple[list[str], bool]:
        """The topics of the pattern's namespace, and whether the broker has filtered them by the
        pattern. Raises the broker's error.
        """
        connection = await self.service_connection()
        answer = await connection.request(
            lambda request_id: commands.get_topics_of_namespace(
                request_id,
                pattern.namespace,
                mode=_MODES[mode],
                topics_pattern=pattern.text,
            ),
            timeout_s=self._options.operation_timeout_s,
        )
        found = answer.getTopicsOfNamespaceResponse
        return list(found.topics), found.filtered

    async def partitions_of(self, topic: str, *, auto_create: bool = True) -> int:
        """Number of partitions; 0 for an unpartitioned topic. Raises the broker's error."""
        connection = await self.service_connection()
        answer = await connection.request(
            lambda request_id: commands.partitioned_metadata(
                topic, request_id, auto_create=auto_create
            ),
            timeout_s=self._options.operation_timeout_s,
            topic=topic,
        )
        metadata = answer.partitionMetadataResponse
        if metadata.response == CommandPartitionedTopicMetadataResponse.Failed:
            raise from_broker(error_name(metadata.error), metadata.message, topic)
        return metadata.partitions

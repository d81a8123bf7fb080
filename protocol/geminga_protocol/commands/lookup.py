"""Lookups: a topic's broker, its partitions, a namespace's topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from geminga_protocol.commands.connection import NOBODY, Original
from geminga_protocol.encode import framed
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
    KeyValue,
    ServerError,
)

_Lookup = CommandLookupTopicResponse
_Partitioned = CommandPartitionedTopicMetadataResponse


def partitioned_metadata(
    topic: str,
    request_id: int,
    *,
    auto_create: bool = True,
    original: Original = NOBODY,
) -> bytes:
    """PARTITIONED_METADATA; with `auto_create` False the broker must not create it (PIP-344)."""
    body = CommandPartitionedTopicMetadata(
        topic=topic,
        request_id=request_id,
        original_principal=original.principal,
        original_auth_data=original.auth_data,
        original_auth_method=original.auth_method,
        metadata_auto_creation_enabled=auto_create,
    )
    return framed(body)


def partitioned_metadata_response(request_id: int, partitions: int) -> bytes:
    """PARTITIONED_METADATA_RESPONSE; 0 partitions: the topic is not partitioned."""
    body = _Partitioned(partitions=partitions, request_id=request_id, response=_Partitioned.Success)
    return framed(body)


def partitioned_metadata_error(request_id: int, code: ServerError, message: str) -> bytes:
    """PARTITIONED_METADATA_RESPONSE with an error."""
    body = _Partitioned(
        request_id=request_id, response=_Partitioned.Failed, error=code, message=message
    )
    return framed(body)


def lookup(
    topic: str,
    request_id: int,
    *,
    authoritative: bool = False,
    listener_name: str | None = None,
    original: Original = NOBODY,
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """LOOKUP; `authoritative` after a redirect to this broker."""
    body = CommandLookupTopic(
        topic=topic,
        request_id=request_id,
        authoritative=authoritative,
        original_principal=original.principal,
        original_auth_data=original.auth_data,
        original_auth_method=original.auth_method,
        advertised_listener_name=listener_name,
        properties=[KeyValue(key=k, value=v) for k, v in (properties or {}).items()],
    )
    return framed(body)


def lookup_response(
    request_id: int,
    *,
    broker_url: str | None = None,
    broker_url_tls: str | None = None,
    redirect: bool = False,
    authoritative: bool = False,
    proxy_through_service_url: bool = False,
) -> bytes:
    """LOOKUP_RESPONSE: connect to the broker, or with `redirect` send it the LOOKUP."""
    body = _Lookup(
        brokerServiceUrl=broker_url,
        brokerServiceUrlTls=broker_url_tls,
        response=_Lookup.Redirect if redirect else _Lookup.Connect,
        request_id=request_id,
        authoritative=authoritative,
        proxy_through_service_url=proxy_through_service_url,
    )
    return framed(body)


def lookup_error(request_id: int, code: ServerError, message: str) -> bytes:
    """LOOKUP_RESPONSE with an error."""
    body = _Lookup(response=_Lookup.Failed, request_id=request_id, error=code, message=message)
    return framed(body)


def get_topics_of_namespace(
    request_id: int,
    namespace: str,
    *,
    mode: CommandGetTopicsOfNamespace.Mode = CommandGetTopicsOfNamespace.PERSISTENT,
    topics_pattern: str | None = None,
    topics_hash: str | None = None,
) -> bytes:
    """GET_TOPICS_OF_NAMESPACE (PIP-145)."""
    body = CommandGetTopicsOfNamespace(
        request_id=request_id,
        namespace=namespace,
        mode=mode,
        topics_pattern=topics_pattern,
        topics_hash=topics_hash,
    )
    return framed(body)


def get_topics_of_namespace_response(
    request_id: int,
    topics: Iterable[str],
    *,
    filtered: bool = False,
    topics_hash: str | None = None,
    changed: bool = True,
) -> bytes:
    """GET_TOPICS_OF_NAMESPACE_RESPONSE; no topics if not `changed`: the client's hash was right."""
    body = CommandGetTopicsOfNamespaceResponse(
        request_id=request_id,
        topics=topics,
        filtered=filtered,
        topics_hash=topics_hash,
        changed=changed,
    )
    return framed(body)


def watch_topic_list(
    request_id: int,
    watcher_id: int,
    namespace: str,
    topics_pattern: str,
    *,
    topics_hash: str | None = None,
) -> bytes:
    """WATCH_TOPIC_LIST (PIP-145)."""
    body = CommandWatchTopicList(
        request_id=request_id,
        watcher_id=watcher_id,
        namespace=namespace,
        topics_pattern=topics_pattern,
        topics_hash=topics_hash,
    )
    return framed(body)


def watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_LIST_SUCCESS; no topics if the watcher's hash was right."""
    body = CommandWatchTopicListSuccess(
        request_id=request_id, watcher_id=watcher_id, topic=topics, topics_hash=topics_hash
    )
    return framed(body)


def watch_topic_update(
    watcher_id: int, new_topics: Iterable[str], deleted_topics: Iterable[str], topics_hash: str
) -> bytes:
    """WATCH_TOPIC_UPDATE, with the hash of the list after the change."""
    body = CommandWatchTopicUpdate(
        watcher_id=watcher_id,
        new_topics=new_topics,
        deleted_topics=deleted_topics,
        topics_hash=topics_hash,
    )
    return framed(body)


def watch_topic_list_close(request_id: int, watcher_id: int) -> bytes:
    """WATCH_TOPIC_LIST_CLOSE."""
    return framed(CommandWatchTopicListClose(request_id=request_id, watcher_id=watcher_id))

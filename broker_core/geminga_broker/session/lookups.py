"""Lookups, topic lists and their watchers (spec CL-05, BR-39)."""

from __future__ import annotations

import trio

from geminga_broker.cluster.catalog import (
    MANAGED_LEDGERS,
    TopicCatalog,
    TopicPattern,
    by_mode,
    compile_pattern,
    list_hash,
    matching,
    topic_of_ledger_path,
    without_system,
)
from geminga_broker.config import TopicConfig
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.finder import Located
from geminga_broker.session.authorization import authorize
from geminga_broker.session.session import Session
from geminga_protocol.commands import answers, lookup
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    ServerError,
)
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import Change, Notification

WATCHERS_MAX = 1000
"""Topic watchers of one connection."""

GATHER_S = 0.05
"""How long changes of a topic list are gathered before an update is sent."""


async def partitioned_metadata(session: Session, command: CommandPartitionedTopicMetadata) -> None:
    """The number of partitions; creates the topic if policy and client allow it."""
    topic = TopicName.parse(command.topic)
    service = session.service
    count = await service.topics.partition_count(
        topic, create=command.metadata_auto_creation_enabled
    )
    session.write(lookup.partitioned_metadata_response(command.request_id, count))


async def lookup_topic(session: Session, command: CommandLookupTopic) -> None:
    """The broker that serves the topic."""
    found = await session.service.lookup.locate(
        TopicName.parse(command.topic),
        command.advertised_listener_name,
        authoritative=command.authoritative,
    )
    _answer_lookup(session, command, found)


def lookup_known(session: Session, command: CommandLookupTopic) -> bool:
    """Answer at once if the topic's broker is known here; whether it was."""
    topic = TopicName.parse(command.topic)
    found = session.service.lookup.known(topic, command.advertised_listener_name)
    if found is None:
        return False
    _answer_lookup(session, command, found)
    return True


def _answer_lookup(session: Session, command: CommandLookupTopic, found: Located) -> None:
    answer = lookup.lookup_response(
        command.request_id,
        broker_url=found.addresses.broker_url or None,
        broker_url_tls=found.addresses.broker_url_tls or None,
        redirect=found.redirect,
        authoritative=found.authoritative,
    )
    session.write(answer)


LISTED_AT_ONCE_MAX = 1000
"""Names that are matched in one turn of the loop, 10 ms."""


async def topics_of_namespace(session: Session, command: CommandGetTopicsOfNamespace) -> None:
    """The namespace's topics, filtered here if the pattern allows that.

    For a connection one list at a time, and only while it reads: lists can be long.
    """
    async with session.long_answer:
        await session.backpressure.until_writable()
        # Grants may have been revoked during the wait.
        await authorize(session, BaseCommand.Type.GET_TOPICS_OF_NAMESPACE, command)
        await _list_topics(session, command)


async def _list_topics(session: Session, command: CommandGetTopicsOfNamespace) -> None:
    config = session.service.config.topics
    names = await session.service.topics.names(command.namespace)
    names = by_mode(names, command.mode)
    pattern = None
    text = command.topics_pattern
    if text and config.pattern_filtering and len(text) <= config.pattern_length_max:
        pattern = compile_pattern(text)
    names, digest = await _listed(session.service.catalog, names, pattern)
    changed = not command.HasField("topics_hash") or command.topics_hash != digest
    session.write(
        lookup.get_topics_of_namespace_response(
            command.request_id,
            names if changed else (),
            filtered=pattern is not None,
            topics_hash=digest,
            changed=changed,
        )
    )


def _watched_pattern(config: TopicConfig, text: str) -> TopicPattern:
    """Raises BrokerError, with Apache's words."""
    pattern = None
    if not config.pattern_filtering:
        reason = "Evaluating subscription patterns is disabled."
    elif len(text) > config.pattern_length_max:
        reason = f"Pattern longer than maximum: {config.pattern_length_max}"
    else:
        reason = "Invalid topics pattern"
        pattern = compile_pattern(text)
    if pattern is None:
        text = f"Unable to create topic list watcher: {reason}"
        raise BrokerError(ServerError.NotAllowedError, text)
    return pattern


async def watch_topic_list(session: Session, command: CommandWatchTopicList) -> None:
    """Send the namespace's matching topics, and then each change, until closed (PIP-145)."""
    config = session.service.config.topics
    pattern = _watched_pattern(config, command.topics_pattern)
    if command.watcher_id in session.watchers:
        raise BrokerError(ServerError.NotAllowedError, "Topic list watcher is already present")
    if len(session.watchers) >= WATCHERS_MAX:
        raise BrokerError(ServerError.TooManyRequests, "too many topic list watchers")
    scope = session.watchers[command.watcher_id] = trio.CancelScope()
    try:
        with scope:
            await _watch(session, command, pattern)
    finally:
        if session.watchers.get(command.watcher_id) is scope:
            del session.watchers[command.watcher_id]


async def _watch(session: Session, command: CommandWatchTopicList, pattern: TopicPattern) -> None:
    """After each change, send the difference to the client's list."""
    prefix = f"{MANAGED_LEDGERS}/{command.namespace}/persistent"
    async with session.service.store.watch(prefix) as changes:
        known, digest = await _persistent_matching(session, command.namespace, pattern)
        session.write(
            lookup.watch_topic_list_success(
                command.request_id,
                command.watcher_id,
                () if command.topics_hash == digest else sorted(known),
                digest,
            )
        )
        while await _topics_changed(changes):
            # Changes while the client doesn't read are sent together later.
            await session.backpressure.until_writable()
            try:
                await authorize(session, BaseCommand.Type.WATCH_TOPIC_LIST, command)
            except BrokerError:
                return  # end the updates without an error: opening the watcher was allowed
            now, digest = await _persistent_matching(session, command.namespace, pattern)
            if now != known:
                new, gone = sorted(now - known), sorted(known - now)
                update = lookup.watch_topic_update(command.watcher_id, new, gone, digest)
                session.write(update)
                known = now


async def _topics_changed(changes: trio.MemoryReceiveChannel[Notification]) -> bool:
    """Wait for created or deleted topics, and then GATHER_S for more of them."""
    async for change in changes:
        made_or_gone = change.kind in (Change.CREATED, Change.DELETED)
        if change.kind is Change.LOST or (made_or_gone and topic_of_ledger_path(change.path)):
            await trio.sleep(GATHER_S)
            try:
                while True:
                    changes.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return True
    return False


async def _persistent_matching(
    session: Session, namespace: str, pattern: TopicPattern
) -> tuple[set[str], str]:
    catalog = session.service.catalog
    names, digest = await _listed(catalog, await catalog.persistent(namespace), pattern)
    return set(names), digest


async def _listed(
    catalog: TopicCatalog, names: list[str], pattern: TopicPattern | None
) -> tuple[list[str], str]:
    """What a client may see of these names, and its hash."""

    def found() -> tuple[list[str], str]:
        seen = without_system(names)
        kept = seen if pattern is None else matching(seen, pattern)
        return kept, list_hash(kept)

    if len(names) <= LISTED_AT_ONCE_MAX:
        return found()
    # A thread gives way to the loop each few milliseconds.
    return await trio.to_thread.run_sync(found, limiter=catalog.list_threads)


def close_watcher(session: Session, command: CommandWatchTopicListClose) -> None:
    """Stop a watcher, if it exists."""
    scope = session.watchers.pop(command.watcher_id, None)
    if scope is not None:
        scope.cancel()
    session.write(answers.success(command.request_id))

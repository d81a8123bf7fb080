"""Deletion of inactive topics (spec BR-04; Apache's `checkGC`)."""

from __future__ import annotations

import logging

import trio

from geminga_broker.cluster.topics import Topics
from geminga_broker.config import TopicConfig
from geminga_broker.errors import BrokerError
from geminga_broker.loadbalance.names import heartbeat_broker
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import Turns, run_guarded

_log = logging.getLogger(__name__)


async def delete_inactive(topics: Topics, config: TopicConfig) -> None:
    """Every period, delete inactive topics (`brokerDeleteInactiveTopics…`). Until cancelled."""
    while True:
        await trio.sleep(config.delete_inactive_period_s)
        if not config.delete_inactive:
            continue
        turns = Turns()
        for key, topic in list(topics.loaded.items()):
            await run_guarded(_delete_if_inactive, topics, key, topic)
            await turns.spend(1 + len(topic.subscriptions))


async def _delete_if_inactive(topics: Topics, key: str, topic: Topic) -> None:
    if not may_delete(topic):
        return
    try:
        if await topics.delete_loaded(key, _check):
            _log.info("topic=%s was inactive, deleted", key)
    except Exception as error:
        _log.info("topic=%s is inactive, but was not deleted: %s", key, error)


def _check(topic: Topic) -> None:
    if not may_delete(topic):
        raise BrokerError(ServerError.NotAllowedError, "in use again")
    if isinstance(topic, PersistentTopic):
        _warn_of_loss(topic)


def may_delete(topic: Topic) -> bool:
    """Whether the topic has been unused for long enough, and holds nothing that must be kept."""
    policies = topic.policies
    inactivity, retention_s = policies.inactivity, policies.retention.time_s
    idle_s = trio.current_time() - topic.idle_since_s
    if not (topic.idle and inactivity.delete and idle_s >= inactivity.after_s):
        return False
    if topic.persistent and (retention_s < 0 or idle_s < retention_s):
        return False
    if inactivity.mode == "delete_when_no_subscriptions":
        return not topic.subscriptions
    return all(not each.backlog_entries() for each in topic.subscriptions.values())


def _warn_of_loss(topic: PersistentTopic) -> None:
    """Warn before an inactive topic with messages is deleted; nobody misses those of health
    checks.
    """
    found = topic.log.statistics()
    if found.entries and not heartbeat_broker(TopicName.parse(topic.name).namespace):
        _log.warning(
            "topic=%s is inactive and is deleted with its %d entries (%d bytes): a subscription or "
            "retention keeps a topic, brokerDeleteInactiveTopicsEnabled=false keeps all",
            topic.name,
            found.entries,
            found.size_bytes,
        )

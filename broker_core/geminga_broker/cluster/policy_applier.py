"""Brings changed policies to topics that are loaded, and to those that are being loaded meanwhile
(spec BR-60).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from geminga_broker.change_events.api import EventsUnavailable
from geminga_broker.cluster.catalog import is_system_topic
from geminga_broker.log.api import LogError
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.policies.apply import (
    BrokerLimits,
    apply_common_policies,
    apply_policies,
    expire_messages,
)
from geminga_broker.policies.resolve import Effective, PolicyResolver
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import side_by_side
from geminga_runtime.json_text import BadJson
from geminga_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

SCANNED_AT_ONCE = 1000
"""Topics that are asked whether a change concerns them, in one turn of the loop."""

APPLIED_AT_ONCE = 8
"""Topics that take their policies side by side: each reads two records."""


class PolicyApplier:
    """Applies policies to the topics of one broker, by their full names."""

    def __init__(
        self, topics: Mapping[str, Topic], resolver: PolicyResolver, limits: BrokerLimits
    ) -> None:
        self._topics = topics
        self.limits = limits
        """What all topics share; may be replaced, before `apply`."""
        self.resolver = resolver
        self.changes = 0
        """How often policies changed: see `catch_up`."""

    def limits_of(self, topic: TopicName) -> BrokerLimits:
        """The broker's limits, which hold for the topics of users."""
        return BrokerLimits() if is_system_topic(topic) else self.limits

    async def apply(self, concerned: Callable[[str], bool]) -> list[str]:
        """Apply the current policies to the loaded topics that `concerned` selects. Returns those
        that can't take them now. Raises MetadataError.
        """
        self.changes += 1
        jobs: list[Callable[[], Awaitable[None]]] = []
        failed: list[str] = []
        for count, (key, topic) in enumerate(list(self._topics.items()), 1):
            if concerned(key):
                jobs.append(partial(self._apply_to, key, topic, failed))
            if count % SCANNED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        await side_by_side(jobs, APPLIED_AT_ONCE)
        return failed

    async def _apply_to(self, key: str, topic: Topic, failed: list[str]) -> None:
        try:
            async with topic.policies_lock:
                if self._topics.get(key) is topic:
                    await self.take(topic, await self.resolver.resolve(TopicName.parse(key)))
        except (LogError, EventsUnavailable) as error:
            _log.warning("topic=%s policies not applied: %s", key, error)
            if not topic.fenced:
                failed.append(key)
        except (ConfigError, BadJson) as error:  # until the record is changed again
            _log.warning("topic=%s policies not applied: %s", key, error)

    async def catch_up(self, name: TopicName, topic: Topic, changes: int) -> None:
        """Apply to a topic that is being loaded what has changed since `changes` was read: it
        wasn't among the loaded ones, and may have read its policies before. Raises as a load.
        """
        while changes != self.changes:
            changes = self.changes
            await self.take(topic, await self.resolver.resolve(name))

    async def take(self, topic: Topic, effective: Effective) -> None:
        """Apply these policies to one topic; see `apply_policies`. Messages that are too old by a
        new time to live go at once. Raises LogError.
        """
        policies, options = effective
        ttl_s = topic.policies.message_ttl_s
        limits = self.limits_of(TopicName.parse(topic.name))
        topic.set_options(options)
        if isinstance(topic, PersistentTopic):
            if isinstance(topic.log, TopicLog):
                topic.log.set_retention(policies.retention)
                topic.log.set_persistence(policies.persistence)
            await apply_policies(topic, policies, limits)
            if policies.message_ttl_s != ttl_s:
                await expire_messages(topic)
        else:
            apply_common_policies(topic, policies, limits)

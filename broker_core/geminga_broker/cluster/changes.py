"""Changes of policies and grants, whoever has made them: this broker, another one of the cluster,
or somebody with a client of the metadata store (spec PX-22, BR-60; in Apache topics and caches
listen to PulsarResources).

Followed are the records that loaded topics and open connections have taken over:

| record | what follows it |
|---|---|
| `/admin/policies/{tenant}` | the rights of the tenant's administrators |
| `/admin/policies/{tenant}/{namespace}` | policies of its loaded topics, rights of its clients |

Policies of single topics are told by who follows them (`change_events`). Others are read when they
are needed: bundles (`/admin/local-policies`), clusters, partitioned topics.

What was changed here is applied before its call is answered. The rest is applied a moment after it
was told, all of that moment at once, without what was applied here: a store tells of a write before
it answers it. When changes were missed, everything is applied again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import trio

from geminga_broker.authz.needs import Place
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName
from geminga_runtime.metadata.api import Change, MetadataError, MetadataStore, Notification

_log = logging.getLogger(__name__)

GATHER_S = 0.05
"""Changes of this time are applied together."""

REST_SHARE = 4
REST_MAX_S = 1.0
"""After changes took t seconds to apply, the next ones wait for four times that, and for a second
at most.
"""

RETRY_S = 1.0
RETRY_MAX_S = 60.0
"""What can't be applied is tried again after the first, then twice as late each time."""

NAMES_MAX = 1024
"""Names that are kept; more of them count as everything."""

EVENTS_MAX = 4096
"""Notifications that were not looked at yet; more of them count as missed."""

POLICIES = "/admin/policies"
_NAMES_SHOWN = 5


class Changed:
    """What has changed: names of tenants, namespaces and topics, or everything. Pure."""

    __slots__ = ("everything", "names")

    def __init__(self, names: Iterable[str] = (), *, everything: bool = False) -> None:
        self.everything = everything
        self.names: set[str] = set()
        self.add(names)

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)

    def __str__(self) -> str:
        if self.everything:
            return "everything"
        shown = sorted(self.names)[:_NAMES_SHOWN]
        left_out = len(self.names) - len(shown)
        return ", ".join(shown) + (f" and {left_out} more" if left_out else "")

    def add(self, names: Iterable[str]) -> None:
        """These too."""
        if not self.everything:
            self.names.update(names)
            if len(self.names) > NAMES_MAX:
                self.add_everything()

    def add_everything(self) -> None:
        """Changes were missed."""
        self.everything = True
        self.names.clear()

    def merge(self, other: Changed) -> None:
        """Also what the other one holds."""
        if other.everything:
            self.add_everything()
        self.add(other.names)

    def covers(self, *names: str) -> bool:
        """Whether one of these may have changed."""
        return self.everything or not self.names.isdisjoint(names)


class ChangeQueue:
    """Changes of one kind that are to be applied by `apply`, which returns what must be tried
    again; `what` is for logs.
    """

    def __init__(self, what: str, apply: Callable[[Changed], Awaitable[Changed]]) -> None:
        self._what = what
        self._apply = apply
        self._changed = Changed()
        self._told = trio.Event()

    def note(self, changed: Changed) -> None:
        """To be applied soon."""
        self._changed.merge(changed)
        if self._changed:
            self._told.set()

    async def apply_now(self, name: str) -> None:
        """Apply what this broker has changed. What can't be applied is tried again later. Raises
        MetadataError.
        """
        # Whoever follows the store was told of the write, and has its turn before this ends.
        for _ in range(2):
            await trio.lowlevel.checkpoint()
        self._changed.names.discard(name)
        changed = Changed([name])
        try:
            left = await self._apply(changed)
        except BaseException:
            self.note(changed)
            raise
        self.note(left)

    async def run(self) -> None:
        """Apply what is noted, until cancelled."""
        left, retry_s, retry_at, rest_until = Changed(), RETRY_S, math.inf, -math.inf
        while True:
            with trio.move_on_at(retry_at):
                await self._told.wait()
            await trio.sleep_until(max(trio.current_time() + GATHER_S, rest_until))
            self._told = trio.Event()
            taken, self._changed = self._changed, Changed()
            began_at = trio.current_time()
            is_due = began_at >= retry_at
            if is_due or taken.everything:
                taken.merge(left)
                left = Changed()
            left.merge(await self._try(taken))
            now = trio.current_time()
            rest_until = now + min(REST_SHARE * (now - began_at), REST_MAX_S)
            if not left:
                retry_s, retry_at = RETRY_S, math.inf
            elif is_due or retry_at == math.inf:
                retry_at = now + retry_s
                retry_s = min(2 * retry_s, RETRY_MAX_S)

    async def _try(self, changed: Changed) -> Changed:
        if not changed:
            await trio.lowlevel.checkpoint()
            return changed
        try:
            return await self._apply(changed)
        except MetadataError as error:
            _log.warning("changed %s not applied yet: %s: %s", self._what, changed, error)
            return changed
        except Exception:  # the next change must not go unheard
            _log.exception("defect: changed %s not applied: %s", self._what, changed)
            return Changed()


class PolicyChanges:
    """Applies changes to the topics and connections of one broker.

    `apply_policies` applies the policies of the loaded topics that its argument selects by their
    full names, and returns those that can't take them now; `recheck` asks again for the rights to
    the places that its argument selects.
    """

    def __init__(
        self,
        store: MetadataStore,
        apply_policies: Callable[[Callable[[str], bool]], Awaitable[list[str]]],
        recheck: Callable[[Callable[[Place], bool]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._apply_policies = apply_policies
        self._recheck = recheck
        self._policies = ChangeQueue("policies", self._follow_policies)
        self._grants = ChangeQueue("grants", self._follow_grants)

    async def namespace_changed(self, namespace: str) -> None:
        """Apply a namespace's policies, which this broker has changed. Raises MetadataError: then
        they are applied later.
        """
        await self._policies.apply_now(namespace)

    async def topic_changed(self, topic: TopicName) -> None:
        """Apply a topic's policies, which this broker has changed, to it or to its partitions.
        Raises MetadataError: then they are applied later.
        """
        await self._policies.apply_now(str(topic.partitioned_base))

    async def grants_changed(self, tenant: str, namespace: str | None = None) -> None:
        """This broker has changed grants of a tenant, or of one of its namespaces: close producers
        and consumers that lost their right. Raises MetadataError: then they are closed later.
        """
        await self._grants.apply_now(namespace or tenant)

    def topics_changed(self, topics: Iterable[str]) -> None:
        """The policies of topics with these full names have changed, whoever has changed them:
        apply them to the topics or to their partitions.
        """
        self._policies.note(Changed(topics))

    def settings_changed(self) -> None:
        """The broker's own settings have changed, which topics take over beside policies."""
        self._policies.note(Changed(everything=True))

    def super_users_changed(self) -> None:
        """Who may do everything has changed."""
        self._grants.note(Changed(everything=True))

    async def run(self) -> None:
        """Follow the metadata store until cancelled, or until it is closed."""
        async with trio.open_nursery() as appliers:
            appliers.start_soon(self._policies.run)
            appliers.start_soon(self._grants.run)
            await self._listen()
            appliers.cancel_scope.cancel()

    async def _listen(self) -> None:
        async with self._store.watch(POLICIES, events_max=EVENTS_MAX) as heard:
            self._note(Notification(Change.LOST, POLICIES))  # what was loaded before
            async for change in heard:
                self._note(change)
                with suppress(trio.WouldBlock, trio.EndOfChannel):
                    while True:
                        self._note(heard.receive_nowait())

    def _note(self, change: Notification) -> None:
        policies, grants = changes_of(change)
        self._policies.note(policies)
        self._grants.note(grants)

    async def _follow_policies(self, changed: Changed) -> Changed:
        return Changed(await self._apply_policies(lambda topic: changed.covers(*_levels(topic))))

    async def _follow_grants(self, changed: Changed) -> Changed:
        await self._recheck(lambda place: changed.covers(place.tenant, place.namespace))
        return Changed()


def changes_of(change: Notification) -> tuple[Changed, Changed]:
    """The policies and the grants that may have changed, by a notification of the store."""
    path, nothing = change.path, Changed()
    if change.kind is Change.CHILDREN:
        return nothing, nothing
    if change.kind is Change.LOST:
        everything = Changed(everything=True)
        return everything, Changed(everything=True)
    if path.startswith(f"{POLICIES}/"):
        grants = Changed([path.removeprefix(f"{POLICIES}/")])
        return grants if path.count("/") > POLICIES.count("/") + 1 else nothing, grants
    return nothing, nothing


def _levels(topic: str) -> tuple[str, str, str]:
    """A loaded topic's full name, that of the partitioned topic it may belong to, its namespace.
    All loaded topics are asked: a TopicName of each would cost several times as much.
    """
    namespace = topic.partition("://")[2].split("/", 3)[:-1]
    return topic, topic.rpartition(PARTITION_SUFFIX)[0], "/".join(namespace)

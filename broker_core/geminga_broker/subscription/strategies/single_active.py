"""Exclusive and Failover: one active member gets all entries, in order (spec BR-30)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Entry
from geminga_broker.subscription import effects as fx
from geminga_broker.subscription.state import M
from geminga_broker.subscription.strategies.choose import Give, pick_active
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class SingleActive(Generic[M]):
    """Which member is active. Follows AbstractDispatcherSingleActiveConsumer."""

    def __init__(self, members: list[M], sub_type: int, topic: str, partition: int) -> None:
        self.active: M | None = None
        self.sub_type = sub_type
        self._members = members
        self._topic = topic
        self._partition = partition

    def admit(self, member: M, policy: KeySharedPolicy) -> None:
        """Raises BrokerError ConsumerBusy if an Exclusive subscription is taken."""
        if self.sub_type == SubType.Exclusive and self._members:
            text = "Exclusive consumer is already connected"
            raise BrokerError(ServerError.ConsumerBusy, text)
        self._members.append(member)

    def remove(self, member: M) -> None:
        """A member left; `elect` chooses the next active one."""
        self._members.remove(member)

    def elect(self, added: M | None = None) -> list[fx.TellActive[M]]:
        """Choose the active member after a change; returns notifications, in Failover."""
        chosen = pick_active(self._members, self._topic, self._partition)
        if chosen is not self.active:
            told = self._members
        else:
            told = [added] if added is not None and chosen is not None else []
        self.active = chosen
        if self.sub_type != SubType.Failover:
            return []
        return [fx.TellActive(member, member is chosen) for member in told]

    def assign(self, entries: Sequence[Entry], give: Give[M]) -> Sequence[Entry]:
        """Give entries to the active member while it has permits; returns the rest."""
        member = self.active
        if member is None or not member.ready:
            return entries
        counts = [entry.messages for entry in entries]
        permits = member.permits
        if sum(counts) > permits:
            end = 0
            while permits > 0:
                permits -= counts[end]
                end += 1
            give(member, entries[:end], counts[:end])
            return entries[end:]
        if entries:
            give(member, entries, counts)
        return ()

"""Acknowledgements reported to the program's interceptors (spec SDK-11)."""

from __future__ import annotations

from collections.abc import Sequence

from geminga._acknowledging.acknowledger import Acknowledger, AckTarget
from geminga._acknowledging.acks import AckGroup, Position
from geminga._connection.core import Core
from geminga._consuming.interceptors import ConsumerInterceptors
from geminga._entries.entry import Entry
from geminga.errors import GemingaError
from geminga.message import Message
from geminga.options import ConsumerOptions
from geminga_protocol.message_id import MessageId


class InterceptedAcknowledger(Acknowledger):
    """An acknowledger that calls interceptors."""

    def __init__(
        self,
        core: Core,
        target: AckTarget,
        options: ConsumerOptions,
        interceptors: ConsumerInterceptors,
    ) -> None:
        super().__init__(core, target, options)
        self._interceptors = interceptors

    def acknowledge(self, entry: Entry, index: int) -> None:
        """As Acknowledger.acknowledge."""
        super().acknowledge(entry, index)
        self._interceptors.acknowledged(self._target.topic, Message(entry, index).message_id)

    def acknowledge_run(self, entry: Entry, indexes: Sequence[int]) -> None:
        """As Acknowledger.acknowledge_run."""
        for index in indexes:
            self.acknowledge(entry, index)

    def acknowledge_id(self, message_id: MessageId) -> None:
        """As Acknowledger.acknowledge_id."""
        super().acknowledge_id(message_id)
        self._interceptors.acknowledged(self._target.topic, message_id)

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """As Acknowledger.acknowledge_cumulative."""
        super().acknowledge_cumulative(message_id)
        self._interceptors.acknowledged_cumulative(self._target.topic, message_id)

    def _failed(self, group: AckGroup, error: GemingaError) -> None:
        super()._failed(group, error)
        tell = self._interceptors.acknowledged
        if group.cumulative:
            tell = self._interceptors.acknowledged_cumulative
        for ledger_id, entry_id, _ in group.all_ids():
            tell(self._target.topic, MessageId(ledger_id, entry_id, self._target.partition), error)

    def _before_redelivery(self, refused: list[Position], timed_out: list[Position]) -> None:
        partition = self._target.partition
        if refused:
            self._interceptors.refused(self._target.topic, partition, refused)
        if timed_out:
            self._interceptors.timed_out(self._target.topic, partition, timed_out)


def make_acknowledger(
    core: Core,
    target: AckTarget,
    options: ConsumerOptions,
    interceptors: ConsumerInterceptors | None,
) -> Acknowledger:
    """The acknowledger of a partition's consumer."""
    if interceptors is None:
        return Acknowledger(core, target, options)
    return InterceptedAcknowledger(core, target, options, interceptors)

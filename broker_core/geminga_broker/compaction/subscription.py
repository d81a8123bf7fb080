"""The broker's subscription `__compaction` (BR-50; `PulsarCompactorSubscription`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from geminga_broker.compaction.ledgers import INTERNAL
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Cursor
from geminga_broker.subscription.consumer import Consumer, SubscribeRequest
from geminga_broker.subscription.subscription import Subscription, SubscriptionHost
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class CompactionSubscription(Subscription):
    """The subscription of compaction: it takes no consumers, and only a compaction moves it, as the
    compacted ledger replaces the log up to its mark-delete.
    """

    def __init__(self, name: str, cursor: Cursor, host: SubscriptionHost) -> None:
        super().__init__(name, cursor, host)
        self.idle_since_s = math.inf

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties without the broker's own."""
        found = self.cursor.cursor_properties
        return {name: text for name, text in found.items() if not name.startswith(INTERNAL)}

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties except the broker's own."""
        found = self.cursor.cursor_properties
        own = {name: text for name, text in found.items() if name.startswith(INTERNAL)}
        await self.cursor.set_cursor_properties({**properties, **own})

    def add(self, request: SubscribeRequest) -> Consumer:
        """Raises BrokerError NotAllowedError."""
        raise self._refusal()

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Raises BrokerError NotAllowedError."""
        raise self._refusal()

    async def skip(self, entries: int | None) -> None:
        """Ignored for all entries. Raises BrokerError NotAllowedError for a number."""
        if entries is not None:
            raise self._refusal()

    def expire(self, last: Position) -> None:
        """Ignored: nothing expires here."""

    def _refusal(self) -> BrokerError:
        text = f"Subscription {self.name} belongs to compaction: only a compaction moves it"
        return BrokerError(ServerError.NotAllowedError, text)

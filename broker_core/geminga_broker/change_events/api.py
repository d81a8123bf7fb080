"""How messages of a namespace's `__change_events` are read and written, wherever it is served."""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from geminga_broker.change_events.codec import PolicyEvent
from geminga_broker.errors import BrokerError
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName


class EventsUnavailable(BrokerError):
    """The topic can't be read or written now; the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.ServiceNotReady, message)


class UnfitPolicy(BrokerError):
    """A policy that an event can't hold."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.NotAllowedError, message)


class Told(NamedTuple):
    """A message and what it says; None for one that says nothing of policies."""

    message_id: MessageId
    event: PolicyEvent | None


class EventReader(Protocol):
    """Reads a topic from its beginning; of the compacted part the latest message of each key. All
    methods raise EventsUnavailable.
    """

    async def at_end(self) -> bool:
        """Whether everything that was in the topic at the call has been read."""

    async def read(self) -> list[Told]:
        """The next messages, at least one. What can't be understood is logged and left out."""


class EventWriter(Protocol):
    """Writes to a topic."""

    async def publish(self, key: str, payload: bytes | None, *, cluster: str | None) -> MessageId:
        """Write a message, None to delete its key; `cluster`: for that one only. Durable on return.
        Raises EventsUnavailable: it may be written then, too, unless another writes alone now.
        """


class Events(Protocol):
    """The system topics of all namespaces."""

    def reading(
        self, topic: TopicName, *, create: bool
    ) -> AbstractAsyncContextManager[EventReader]:
        """A reader for the block; `create`: the topic may be made. Raises EventsUnavailable."""

    def writing(
        self, topic: TopicName, *, alone: bool = False
    ) -> AbstractAsyncContextManager[EventWriter]:
        """A writer for the block. One that writes `alone` ends all that were opened before, and
        while it is there others are refused. Raises EventsUnavailable.
        """

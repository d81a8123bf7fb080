"""Receivers of commands that are not responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from geminga_protocol.arrivals import MessageRun, ReceiptRun
from geminga_protocol.pb.pulsar_api_pb2 import CommandSendError


class ProducerSink(Protocol):
    """A producer, as its connection sees it."""

    def on_receipts(self, run: ReceiptRun) -> None:
        """SEND_RECEIPTs."""

    def on_send_error(self, error: CommandSendError, code: str) -> None:
        """SEND_ERROR; `code` is the ServerError's name."""

    def on_lost(self, assigned_broker_url: str | None) -> None:
        """The broker closed it, or the connection is lost."""


class ConsumerSink(Protocol):
    """A consumer, as its connection sees it."""

    def on_messages(self, run: MessageRun) -> None:
        """MESSAGEs."""

    def on_active_change(self, is_active: bool) -> None:
        """ACTIVE_CONSUMER_CHANGE (Failover)."""

    def on_end_of_topic(self) -> None:
        """REACHED_END_OF_TOPIC."""

    def on_lost(self, assigned_broker_url: str | None) -> None:
        """The broker closed it, or the connection is lost."""


class TopicListSink(Protocol):
    """A watcher of topics, as its connection sees it."""

    def on_topics_changed(self, new: Iterable[str], gone: Iterable[str]) -> None:
        """WATCH_TOPIC_UPDATE: names that came, and names that are gone."""

    def on_watch_lost(self) -> None:
        """The connection is lost."""

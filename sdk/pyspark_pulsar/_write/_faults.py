"""Converts errors of the SDK to those of the connector (spec SP-10)."""

from __future__ import annotations

import geminga
from pyspark_pulsar.errors import ConnectorError, SchemaMismatch, TopicMissing, WriteFailed

_HINTS: tuple[tuple[type[geminga.GemingaError], str], ...] = (
    (
        geminga.ProducerBusy,
        "the producer name or topic is in use; producerBusyTimeoutMs sets how long a task waits",
    ),
    (geminga.TopicTerminated, "the topic is terminated and takes no more messages"),
    (geminga.QuotaExceeded, "consume or raise the backlog quota of its namespace"),
    (
        geminga.MessageTooBig,
        "set pulsar.producer.chunkingEnabled=true, or raise the broker's maxMessageSize",
    ),
    (
        geminga.Timeout,
        "pulsar.producer.sendTimeoutMs sets how long a message may take, 0 is no limit",
    ),
    (geminga.AuthorizationFailed, "grant the role the permission to produce"),
    (geminga.AuthenticationFailed, "check pulsar.client.authPluginClassName and authParams"),
    (geminga.CryptoError, "check pulsar.producer.encryptionKeys and publicKeyPath"),
)


def explained(topic: str, error: geminga.GemingaError) -> ConnectorError:
    """The error for a failed write to a topic, with advice where there is some."""
    if isinstance(error, geminga.IncompatibleSchema):
        return SchemaMismatch(
            f"topic {topic}",
            f"its schema isn't compatible with the frame's: {error}; write with schemaType=topic, "
            "or "
            "change the columns",
        )
    if isinstance(error, geminga.TopicNotFound | geminga.InvalidTopicName):
        return TopicMissing(topic, f"{error}; create it, or let the broker create topics")
    hints = [hint for kind, hint in _HINTS if isinstance(error, kind)]
    return WriteFailed(topic, f"{error}; {hints[0]}" if hints else str(error))

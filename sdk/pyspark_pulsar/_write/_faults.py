"""Converts errors of the SDK to those of the connector (spec SP-10)."""

from __future__ import annotations

import geminga
from pyspark_pulsar.errors import ConnectorError, SchemaMismatch, TopicMissing, WriteFailed

_HINTS: tuple[tuple[type[geminga.GemingaError], str], ...] = (
    (
        geminga.ProducerBusyError,
        "the producer name or topic is in use; producerBusyTimeoutMs sets how long a task waits",
    ),
    (geminga.TopicTerminatedError, "the topic is terminated and takes no more messages"),
    (geminga.QuotaExceededError, "consume or raise the backlog quota of its namespace"),
    (
        geminga.MessageTooBigError,
        "set pulsar.producer.chunkingEnabled=true, or raise the broker's maxMessageSize",
    ),
    (
        geminga.OperationTimeoutError,
        "pulsar.producer.sendTimeoutMs sets how long a message may take, 0 is no limit",
    ),
    (geminga.AuthorizationError, "grant the role the permission to produce"),
    (geminga.AuthenticationError, "check pulsar.client.authPluginClassName and authParams"),
    (geminga.CryptoError, "check pulsar.producer.encryptionKeys and publicKeyPath"),
)


def explained(topic: str, error: geminga.GemingaError) -> ConnectorError:
    """The error for a failed write to a topic, with advice where there is some."""
    if isinstance(error, geminga.IncompatibleSchemaError):
        return SchemaMismatch(
            f"topic {topic}",
            f"its schema isn't compatible with the frame's: {error}; write with schemaType=topic, "
            "or "
            "change the columns",
        )
    if isinstance(error, geminga.TopicNotFoundError | geminga.InvalidTopicNameError):
        return TopicMissing(topic, f"{error}; create it, or let the broker create topics")
    hints = [hint for kind, hint in _HINTS if isinstance(error, kind)]
    return WriteFailed(topic, f"{error}; {hints[0]}" if hints else str(error))

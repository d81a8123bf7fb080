"""What the SDK raises, in the words of the connector (spec SP-10)."""

from __future__ import annotations

import geminga
from pyspark_pulsar.errors import ConnectorError, SchemaMismatch, TopicMissing, WriteFailed

_HINTS: tuple[tuple[type[geminga.GemingaError], str], ...] = (
    (
        geminga.ProducerBusy,
        "another producer holds name or topic; producerBusyTimeoutMs says how long a task waits",
    ),
    (geminga.TopicTerminated, "the topic was terminated, nothing can be added to it"),
    (geminga.QuotaExceeded, "consume or raise the backlog quota of its namespace"),
    (
        geminga.MessageTooBig,
        "set pulsar.producer.chunkingEnabled=true, or raise the broker's maxMessageSize",
    ),
    (geminga.Timeout, "pulsar.producer.sendTimeoutMs says how long a message may take, 0 for ever"),
    (geminga.AuthorizationFailed, "give the role the right to produce"),
    (geminga.AuthenticationFailed, "check pulsar.client.authPluginClassName and authParams"),
    (geminga.CryptoError, "check pulsar.producer.encryptionKeys and publicKeyPath"),
)


def explained(topic: str, error: geminga.GemingaError) -> ConnectorError:
    """The error for a topic that can't be written to, with what to do where that is known."""
    if isinstance(error, geminga.IncompatibleSchema):
        return SchemaMismatch(
            f"topic {topic}",
            f"its schema doesn't allow the frame's: {error}; write with schemaType=topic, or "
            "change the columns",
        )
    if isinstance(error, geminga.TopicNotFound | geminga.InvalidTopicName):
        return TopicMissing(topic, f"{error}; create it, or let the broker create topics")
    hints = [hint for kind, hint in _HINTS if isinstance(error, kind)]
    return WriteFailed(topic, f"{error}; {hints[0]}" if hints else str(error))

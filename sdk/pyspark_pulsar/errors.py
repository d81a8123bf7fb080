"""What the connector raises (spec SP-10). Each error names the option, column or topic that it is
about and says what to do, and passes through pickle, since Spark's workers send errors on.
"""

from __future__ import annotations


class ConnectorError(Exception):
    """The base of all that this package raises by itself; errors of connections and rights are
    `geminga.GemingaError`.
    """


class InvalidOption(ConnectorError, ValueError):
    """An option is unknown, or its value is no good. `option` is its name as it was given."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"option {self.option}: {self.reason}"


class TopicError(ConnectorError):
    """What is about one topic, `topic`."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.reason}"


class TopicMissing(TopicError):
    """A topic, or whatever a pattern was to match, isn't there."""


class SchemaMismatch(ConnectorError):
    """Columns don't fit the topic's schema, or topics' schemas don't fit each other. `subject` is
    the column or the topic.
    """

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(subject, reason)
        self.subject = subject
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


class OffsetOutOfRange(TopicError):
    """A position lies outside what the topic holds."""


class DataLoss(TopicError):
    """Messages that were to be read are gone: trimmed, expired, or their topic deleted. With
    `failOnDataLoss=false` it is a warning instead.
    """

    def __str__(self) -> str:
        return f"{super().__str__()}; set failOnDataLoss=false to go on with what is left"


class MalformedMessage(ConnectorError):
    """A message doesn't fit its schema. `row` is its place among the payloads that were decoded
    together; `place` tells topic and message id, once these are known.
    """

    def __init__(self, row: int, reason: str, place: str | None = None) -> None:
        super().__init__(row, reason, place)
        self.row = row
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        where = f"message {self.place}" if self.place else f"row {self.row}"
        return (
            f"{where}: {self.reason}; mode=PERMISSIVE reads such messages as nulls, "
            "mode=DROPMALFORMED leaves them out"
        )


class WriteFailed(TopicError):
    """Rows could not be written. `topic` is where they were to go."""

"""Errors of the connector (spec SP-10). Each names the option, column or topic and says what to do.
They pickle, since Spark's workers send errors to the driver.
"""

from __future__ import annotations


class ConnectorError(Exception):
    """The base of this package's errors; errors of connections and permissions are
    `geminga.GemingaError`.
    """


class InvalidOption(ConnectorError, ValueError):
    """An option is unknown, or its value is invalid. `option` is its name as given."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"option {self.option}: {self.reason}"


class TopicError(ConnectorError):
    """An error about one topic, `topic`."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.reason}"


class TopicMissing(TopicError):
    """A topic doesn't exist, or no topic matches a pattern."""


class SchemaMismatch(ConnectorError):
    """Columns don't match the topic's schema, or the schemas of topics differ. `subject` is the
    column or the topic.
    """

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(subject, reason)
        self.subject = subject
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


class OffsetOutOfRange(TopicError):
    """A position is outside the topic's messages."""


class DataLoss(TopicError):
    """Messages to be read were lost: trimmed, expired, or their topic deleted. With
    `failOnDataLoss=false` a warning instead.
    """

    def __str__(self) -> str:
        return f"{super().__str__()}; set failOnDataLoss=false to continue with what is left"


class MalformedMessage(ConnectorError):
    """A message doesn't match its schema. `row` is its index among the payloads decoded together;
    `place` has topic and message id, if known.
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
            "mode=DROPMALFORMED drops them"
        )


class WriteFailed(TopicError):
    """Rows could not be written to `topic`."""

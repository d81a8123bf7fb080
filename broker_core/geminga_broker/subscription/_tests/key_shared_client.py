"""A connection for the model of Key_Shared."""

from __future__ import annotations

from collections.abc import Callable


class ModelConnection:
    """Takes everything; the model decides when it is full."""

    def __init__(self, name: str) -> None:
        self.address = self.client_version = name
        self.protocol_version = 21
        self.supports_broker_entry_metadata = False
        self.principal = None
        self.writable = True
        self._waiting: list[Callable[[], object]] = []

    def write(self, *buffers: object) -> None:
        """Frames are of no interest here."""

    def write_now(self, *buffers: object) -> None:
        """Nor are these."""

    def on_writable(self, callback: Callable[[], object]) -> None:
        self._waiting.append(callback)

    def set_writable(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def drop_consumer(self, consumer_id: int) -> None:
        raise AssertionError("the broker closes nobody here")

    drop_producer = drop_consumer

"""The watches of a store, found by prefix, each with a bounded channel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from geminga_runtime.metadata.api import Change, Notification
from geminga_runtime.metadata.paths import check_path


class _Watcher:
    """One open watch. The last slot of its channel is reserved for LOST."""

    __slots__ = ("_events_max", "_lost", "prefix", "send")

    def __init__(
        self, prefix: str, send: trio.MemorySendChannel[Notification], events_max: int
    ) -> None:
        self.prefix = prefix
        self.send = send
        self._events_max = events_max
        self._lost = False

    def tell(self, notification: Notification) -> None:
        try:
            used = self.send.statistics().current_buffer_used
            if self._lost and used:
                # LOST is unread: the reader will read everything again.
                return
            self._lost = used >= self._events_max or notification.kind is Change.LOST
            kept = Notification(Change.LOST, self.prefix) if self._lost else notification
            self.send.send_nowait(kept)
        except trio.BrokenResourceError:  # the reader closed its end before the watch
            pass


class WatchHub:
    """All watches of one session. A notification costs one look-up for each part of its path."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[_Watcher]] = {}

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AsyncIterator[trio.MemoryReceiveChannel[Notification]]:
        """MetadataStore.watch."""
        if events_max < 1:
            raise ValueError("events_max must be positive")
        check_path(prefix)
        send, receive = trio.open_memory_channel[Notification](events_max + 1)
        watcher = _Watcher(prefix, send, events_max)
        self._watchers.setdefault(prefix, []).append(watcher)
        try:
            yield receive
        finally:
            watcher.send.close()
            receive.close()
            beside = self._watchers[prefix]
            beside.remove(watcher)
            if not beside:
                del self._watchers[prefix]

    def publish(self, notifications: Iterable[Notification]) -> None:
        """Notify the watches of each path and of its ancestors."""
        if not self._watchers:
            return
        watchers = self._watchers
        for notification in notifications:
            path = notification.path
            while True:
                if path in watchers:
                    for watcher in watchers[path]:
                        watcher.tell(notification)
                if path == "/":
                    break
                path = path[: path.rindex("/")] or "/"

    def prefixes(self) -> list[str]:
        """The prefixes that are watched."""
        return list(self._watchers)

    def count(self, prefix: str) -> int:
        """Number of open watches of exactly that prefix."""
        return len(self._watchers.get(prefix, ()))

    def lose(self, prefix: str) -> None:
        """Tell the watches of that prefix that changes may have been missed."""
        for watcher in self._watchers.get(prefix, ()):
            watcher.tell(Notification(Change.LOST, prefix))

    def close(self) -> None:
        """End all watches: their readers see the end of the channel."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.send.close()

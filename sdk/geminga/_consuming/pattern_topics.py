"""The topics of a pattern and their partitions, updated by changes (spec SDK-26;
PatternMultiTopicsConsumerImpl and PatternConsumerUpdateQueue of the Java client).
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga._connection.topic_pattern import Listed, TopicPattern, parsed
from geminga._connection.topics import Topics
from geminga.options import RegexSubscriptionMode
from geminga_protocol.topic_name import TopicName

CHANGES_MAX = 10_000
"""Bound of remembered changed topics; above it all topics are listed again."""


class PatternTopics:
    """Keeps the names that the broker lists for each topic; requests the number of partitions only
    for topics whose names changed.
    """

    def __init__(
        self, topics: Topics, pattern: TopicPattern, flags: int, mode: RegexSubscriptionMode
    ) -> None:
        self.pattern = pattern
        self._topics = topics
        self._flags = flags
        self._mode = mode
        self._listed: Listed = {}
        self._found: dict[TopicName, dict[str, int]] = {}
        self._changes: dict[str, bool] = {}
        self._unseen = 0
        """Number of possibly missed changes; `_known` is its value at the last search."""
        self._known = -1

    def changed(self, new: Iterable[str], gone: Iterable[str]) -> None:
        """Changes reported by the broker's watcher, which covers persistent topics only."""
        if self._mode is not RegexSubscriptionMode.PERSISTENT_ONLY:
            self.changed_unseen()
        for names, is_there in ((gone, False), (new, True)):
            for name in names:
                self._changes.pop(name, None)
                self._changes[name] = is_there
        if len(self._changes) > CHANGES_MAX:
            self.changed_unseen()

    def changed_unseen(self) -> None:
        """Unknown changes may have been missed."""
        self._changes.clear()
        self._unseen += 1

    async def find(self, *, whole: bool) -> list[tuple[str, int]]:
        """All partitions by full name and index. If changes may have been missed, the topics are
        listed again; a `whole` search also requests unchanged topics' numbers of partitions.
        Raises GemingaError.
        """
        changes, self._changes = self._changes, {}
        unseen = self._unseen
        # -1 until success: after a failure or cancellation, the next search lists again.
        is_known, self._known = self._known == unseen, -1
        if whole or not is_known:
            listed = await self._topics.listed(self.pattern, self._flags, self._mode)
        else:
            listed = self._with(changes)
        stale = [
            base
            for base, names in listed.items()
            if names != self._listed.get(base) or (whole and names != {base})
        ]
        found = {base: parts for base, parts in self._found.items() if base in listed}
        alone = [base for base in stale if listed[base] == {base}]
        found |= {base: {str(base): base.partition_index} for base in alone}
        asked = [base for base in stale if listed[base] != {base}]
        for base, parts in zip(asked, await self._topics.parts_if_there(asked), strict=True):
            found[base] = parts
        self._listed, self._found = listed, found
        self._known = unseen
        return [part for base in sorted(found, key=str) for part in found[base].items()]

    def _with(self, changes: dict[str, bool]) -> Listed:
        """The list with these changes."""
        listed = dict(self._listed)
        for text, is_there in changes.items():
            name = parsed(text)
            if name is None:
                continue
            base = name.partitioned_base
            names = set(listed.get(base, ()))
            if is_there:
                names.add(name)
            else:
                names.discard(name)
            if names:
                listed[base] = names
            else:
                listed.pop(base, None)
        return listed

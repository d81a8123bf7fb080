"""The topics of a pattern and their partitions, kept up to date by what changes (spec SDK-26;
PatternMultiTopicsConsumerImpl and PatternConsumerUpdateQueue of the Java client).
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga._connection.topic_pattern import Listed, TopicPattern, parsed
from geminga._connection.topics import Topics
from geminga.options import RegexSubscriptionMode
from geminga_protocol.topic_name import TopicName

CHANGES_MAX = 10_000
"""Changed topics that are remembered one by one; beyond them all topics are listed again."""


class PatternTopics:
    """Knows which names the broker lists for each topic; asks for the number of partitions of those
    topics only whose names changed.
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
        """How often something may have changed unseen, and how often it had at the last look."""
        self._known = -1

    def changed(self, new: Iterable[str], gone: Iterable[str]) -> None:
        """The broker's watcher says so. It knows persistent topics only."""
        if self._mode is not RegexSubscriptionMode.PERSISTENT_ONLY:
            self.changed_unseen()
        for names, is_there in ((gone, False), (new, True)):
            for name in names:
                self._changes.pop(name, None)
                self._changes[name] = is_there
        if len(self._changes) > CHANGES_MAX:
            self.changed_unseen()

    def changed_unseen(self) -> None:
        """Something may have changed, nobody knows what."""
        self._changes.clear()
        self._unseen += 1

    async def find(self, *, whole: bool) -> list[tuple[str, int]]:
        """All partitions by full name and index. If changes may have been missed, the broker's list
        is asked for; a `whole` look asks for the numbers of partitions of unchanged topics too.
        Raises GemingaError.
        """
        changes, self._changes = self._changes, {}
        unseen = self._unseen
        # Until it is done: a failure, or a cancellation, leaves it to the next look.
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
        """What is listed, after these changes."""
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

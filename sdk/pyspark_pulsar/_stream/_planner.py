"""Plans the micro-batches of a stream, on the driver (spec SP-05).

All that must survive the driver is in the offsets that Spark keeps. All other state can be lost at
any moment: a restarted query plans the same ranges from the same offsets.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping

from geminga import GemingaError
from pyspark_pulsar._clients import client_for, for_each
from pyspark_pulsar._options import Edge, ReadOptions
from pyspark_pulsar._plan._ranges import RangeResolver, check_names, check_present, where_of
from pyspark_pulsar._plan._tasks import split_ranges
from pyspark_pulsar._positions import BEGIN, Position, TopicPartition, TopicRange
from pyspark_pulsar._scan._loss import lost
from pyspark_pulsar._stream._discovery import Discovery
from pyspark_pulsar._stream._entry_probe import Admission
from pyspark_pulsar._stream._offsets import LAG, Offsets, lag_of, ranges
from pyspark_pulsar._stream._retention import RetentionSubscription
from pyspark_pulsar._stream._topic_ends import TopicEnds
from pyspark_pulsar._stream._topic_marks import Marks

logger = logging.getLogger("pyspark_pulsar")

AWAY_PAUSE_S = 0.5
"""Pause of an available-now query between attempts to reach a broker."""


class StreamPlanner:
    """The state of one query's planning."""

    def __init__(
        self,
        options: ReadOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._client = client_for(options.client)
        self._clock = clock
        self._pause = pause
        self._discovery = Discovery(self._client, options, lambda: self._clock())
        self._admission = Admission(self._client, options, lambda: self._clock())
        self._topic_ends = TopicEnds(self._client, options)
        self._marks = Marks(self._client, options, lambda: self._clock())
        self._remade: set[str] = set()
        """Topics that were deleted and created again, until a micro-batch reads them from their
        beginning.
        """
        self._retention: RetentionSubscription | None = None
        self._target: Mapping[str, Position] | None = None
        """Where an available-now query ends."""
        self._initial: Offsets | None = None
        self._planned: Offsets | None = None
        """The end of the last micro-batch, for versions of PySpark that don't pass it."""
        self._away_since_s: float | None = None
        self.newest: Offsets | None = None
        """The last positions of the topics, as last seen."""

    # ---- what Spark asks ----

    def initial(self) -> Offsets:
        """The start of a new query, the same at each call. Creates the subscription before it looks
        at the topics, so that nothing is trimmed from then on.

        Spark also calls it when the first micro-batch of an earlier run has to be read again: then
        that offset contains the start of the run.
        """
        if self._initial is None:
            topics = self._discovery.look(strictly=True)
            check_names(self._options.start, list(topics.values()))
            present = self._topic_ends.present(topics)
            check_present(list(topics.values()), present)
            self._begin(None, present)
            lasts = self._topic_ends.last(topics)
            starts = for_each(
                lambda each: self._start_of(each, lasts.get(each.topic, BEGIN)), [*topics.values()]
            )
            positions = dict(zip(topics, starts, strict=True))
            self._initial = self._planned = Offsets(positions, self._made_up)
        return self._initial

    def prepare_available_now(self) -> None:
        """Set the query's end to the current ends of the topics."""
        topics = self._discovery.look()
        self._target = self._topic_ends.last(topics)

    def latest(self, start: Offsets | None, *, limited: bool) -> Offsets:
        """The end of the next micro-batch; `start` if there is nothing new."""
        start = start or self._planned or self.initial()
        ends = self._ends_in_time(start)
        if ends is None:
            found = start.positions
        else:
            self.newest = Offsets(ends)
            found = self._admitted(start, ends) if limited else ends
        is_first = start == self._initial
        if found != start.positions:
            self._admission.planned()
        elif not is_first and start.subscription == self._made_up:
            return start
        anew = tuple(t for t in self._remade if t in found and found[t] != start.positions.get(t))
        self._remade.difference_update(anew)
        self._planned = Offsets(
            found,
            self._made_up,
            start.positions if is_first else None,
            self._marks.renewed(start.marks, found, anew),
            anew,
        )
        return self._planned

    def ranges(self, start: Offsets, end: Offsets) -> list[TopicRange]:
        """The ranges of the micro-batch from one offset to another."""
        if end.began is not None:
            start = Offsets(end.began, end.subscription)
        self._adopt(start)
        self._look_at_marks(end)
        self._move(start)
        self._planned = end
        whole = [each for each in ranges(start, end) if not each.is_empty]
        return split_ranges(self._client, self._options, whole)

    def committed(self, end: Offsets) -> None:
        """Everything up to `end` is done."""
        self._adopt(end)
        self._move(end)

    def report(self) -> dict[str, object] | None:
        """For the query's progress: the ends of the topics as last seen, and how far the last
        micro-batch was behind. None before the first look.
        """
        if self.newest is None:
            return None
        read = {} if self._planned is None else self._planned.positions
        return {**self.newest.as_json(), LAG: lag_of(read, self.newest.positions)}

    def close(self) -> None:
        """The query ended."""
        self._topic_ends.close()

    # ---- the subscription ----

    def _adopt(self, offsets: Offsets) -> None:
        """Restore the state of a query that continues from its checkpoint."""
        if self._planned is None:
            self._begin(offsets.subscription, self._topic_ends.present(self._discovery.look()))
            self._move(offsets)
            self._planned = offsets
        elif offsets.subscription != self._made_up and offsets.subscription and self._retention:
            # Spark asked for the initial offset again, which created a new subscription.
            unused = self._retention
            self._begin(offsets.subscription, self._topic_ends.present(self._discovery.topics))
            if self._retention.name != unused.name:
                unused.drop()

    def _begin(self, made_up: str | None, topics: Iterable[str]) -> None:
        """Create or find the subscription: by the user's name, the one generated earlier, or a new
        one.
        """
        options = self._options
        if not options.anchor:
            return
        name = options.subscription_name or made_up
        self._retention = RetentionSubscription(
            self._client, name or f"{options.subscription_prefix}-{os.urandom(8).hex()}"
        )
        self._retention.hold(topics)

    @property
    def _made_up(self) -> str | None:
        """The subscription's name, if the user gave none."""
        if self._retention is None or self._options.subscription_name is not None:
            return None
        return self._retention.name

    def _move(self, offsets: Offsets) -> None:
        if self._retention is not None:
            there = {n: at for n, at in offsets.positions.items() if n in self._discovery.topics}
            self._retention.move(there)

    # ---- topics and their ends ----

    def _start_of(self, topic: TopicPartition, last: Position) -> Position:
        """The offset after which a new query reads a topic that ends with `last`."""
        if where_of(self._options.start, topic) is Edge.EARLIEST:
            return BEGIN
        there = None if last == BEGIN else last
        first = RangeResolver(self._client, self._options).start_of(topic, there)
        return last if first is None else first.before

    def _ends_in_time(self, start: Offsets) -> dict[str, Position] | None:
        """As `_ends`; None if the broker is away and may return in time."""
        while True:
            try:
                self._adopt(start)
                ends = self._ends(start)
            except GemingaError as error:
                if not self._may_wait(error):
                    raise
                if self._target is None:
                    return None
                # To Spark, an unchanged offset is the end of an available-now query.
                self._pause(AWAY_PAUSE_S)
            else:
                self._away_since_s = None
                return ends

    def _ends(self, start: Offsets) -> dict[str, Position]:
        """The ends of all topics that have something to read. Raises DataLoss."""
        topics = self._discovery.look()
        fails = self._options.fail_on_data_loss
        present = set(self._topic_ends.present(topics))
        for name, read in start.positions.items():
            # A missing partition lost nothing if it had no messages.
            if name not in topics or (name not in present and read != BEGIN):
                self._gone(name)
        self._look_at_marks(start)
        if self._retention is not None:
            self._retention.hold(present)
        newest = self._topic_ends.last(topics)
        for name in (present - newest.keys()) & start.positions.keys():
            self._gone(name)
        if self._target is not None:
            newest = {n: min(at, self._target.get(n, BEGIN)) for n, at in newest.items()}
        empty = [n for n, at in start.positions.items() if at == BEGIN and n in topics]
        found = dict.fromkeys(empty, BEGIN)
        for name, last in newest.items():
            at = start.positions.get(name)
            if at is None:
                if last != BEGIN:
                    found[name] = last
                continue
            found[name] = at
            if (name in self._remade and last != BEGIN) or last.reach > at.reach:
                found[name] = last
            elif last.entry < at.entry and self._target is None:
                found[name] = self._went_back(name, at, last, fails=fails)
        return found

    def _look_at_marks(self, offsets: Offsets) -> None:
        """Check that the topics are the ones that were read before. Raises DataLoss."""
        for topic in self._marks.remade(offsets.marks):
            if self._retention is not None:
                self._retention.forget(topic)
            self._remade.add(topic)
            lost(
                topic,
                f"it was deleted and created again: {offsets.marks[topic].entry} isn't the "
                "message that was read there",
                fails=self._options.fail_on_data_loss,
            )

    def _gone(self, topic: str) -> None:
        if self._retention is not None:
            self._retention.forget(topic)
        lost(topic, "it no longer exists", fails=self._options.fail_on_data_loss)

    def _went_back(self, topic: str, at: Position, last: Position, *, fails: bool) -> Position:
        """Handle a topic that ends before the position that was read."""
        if last == BEGIN and self._options.anchor is False:
            # Without a subscription, all of it may have been trimmed after it was read.
            return at
        if self._options.read_compacted:
            # Compaction may have removed the last message that was read.
            return at
        lost(topic, f"it ends at {last}, though it was read up to {at}", fails=fails)
        return at if last == BEGIN else last

    def _may_wait(self, error: GemingaError) -> bool:
        """Whether to wait for the broker."""
        now_s = self._clock()
        if self._away_since_s is None:
            self._away_since_s = now_s
        if not error.retryable or now_s - self._away_since_s > self._options.poll_timeout_s:
            return False
        logger.warning("can't look for new messages now: %s", error)
        return True

    def _admitted(self, start: Offsets, ends: dict[str, Position]) -> Mapping[str, Position]:
        """The ends of the micro-batch within the limits."""
        anew = tuple(self._remade)
        wanted = [each for each in ranges(start, Offsets(ends, anew=anew)) if not each.is_empty]
        if not wanted:
            return ends
        if self._target is None and self._admission.is_too_little(wanted):
            return start.positions
        taken = self._admission.taken(wanted)
        if taken is None:
            return ends
        # Without deleted topics.
        return {name: at for name, at in start.positions.items() if name in ends} | {**taken}

"""Selects the messages of a received entry for the program (spec SDK-22, SDK-27, SDK-29)."""

from __future__ import annotations

from collections.abc import Sequence

from geminga._acknowledging.acknowledger import Acknowledger
from geminga._acknowledging.acks import AckTracker
from geminga._consuming.start import Start
from geminga._entries.batch_index import compacted_out
from geminga._entries.entry import Entry, Source
from geminga._entries.plain import open_plain
from geminga.options import ConsumerOptions
from geminga_protocol.ack_set import to_bits
from geminga_protocol.arrivals import MessageRun

_SINGLE = (-1,)


def plain_entries(
    source: Source, run: MessageRun, start: Start, acks: AckTracker
) -> Sequence[Entry]:
    """The first entries of the run that are plain messages, all of which the program is to get."""
    fresh_from = acks.fresh_from(run.ledger_id)
    if fresh_from is None or run.ack_set or not start.wants_all:
        return ()
    return open_plain(source, run, fresh_from)


def deliverable(
    entry: Entry, start: Start, acknowledger: Acknowledger, options: ConsumerOptions
) -> Sequence[int]:
    """Indexes of the messages that are not acknowledged, not before the start, and not removed by
    compaction.
    """
    acks = acknowledger.acks
    if acks.is_acked(entry.ledger_id, entry.entry_id):
        return ()
    first = start.first_of(entry)
    if first and options.durable:
        # Skipped by a seek: the program never gets them, so they are acknowledged here.
        acknowledger.acknowledge_run(entry, range(first) if entry.bounds else _SINGLE)
    if entry.bounds is None:
        return () if first else _SINGLE
    left = acks.deliver(entry)
    gone = compacted_out(entry.bounds, entry.payload) if options.read_compacted else ()
    if gone and options.durable:
        acknowledger.acknowledge_run(entry, gone)
    if left is None and not entry.ack_set and not gone:
        return range(first, entry.message_count)
    bits = to_bits(entry.ack_set) if entry.ack_set else -1
    for n in gone:
        bits &= ~(1 << n)
    return [
        n for n in range(first, entry.message_count) if bits >> n & 1 and (left is None or left[n])
    ]

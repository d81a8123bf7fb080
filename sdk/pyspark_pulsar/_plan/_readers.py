"""Readers of one topic, opened at a place (spec SP-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import geminga
import geminga.blocking
from geminga import MessageId
from pyspark_pulsar._positions import BEGIN, Position

if TYPE_CHECKING:
    from pyspark_pulsar._options import ReadOptions

PENDING_CHUNKED_MAX = 1000
"""Messages in chunks that may be mixed with one another; readers of old data meet those of all
producers at once."""


def start_id(at: Position, *, read_compacted: bool) -> MessageId:
    """What a reader is opened with whose first entry is to be the one at that place, or the next
    one. What is before the place within its entry is left out by who reads.
    """
    if at.ledger_id < 0 and not read_compacted:
        return geminga.EARLIEST
    # By an id such a reader knows that it has something to read before anything came. From the
    # earliest on it holds the last id against a cursor of the log, which is behind what is trimmed.
    return MessageId(max(0, at.ledger_id), max(0, at.entry_id))


def open_reader(
    client: geminga.blocking.Client,
    options: ReadOptions,
    topic: str,
    at: Position,
    *,
    queue_size: int,
) -> geminga.blocking.Reader:
    """A reader whose first entry is the one at that place, or the next one that there is. To be
    closed. Raises GemingaError.

    Entries that can't be decrypted are handed out as they are: who reads must look.
    """
    return client.create_reader(
        topic,
        start_id(at, read_compacted=options.read_compacted),
        start_message_id_inclusive=True,
        receiver_queue_size=queue_size,
        auto_create=False,
        read_compacted=options.read_compacted,
        reader_name=options.reader_name,
        subscription_role_prefix=options.subscription_role_prefix,
        crypto_key_reader=options.key_reader(),
        crypto_failure_action=geminga.ConsumerCryptoFailureAction.CONSUME,
        max_pending_chunked_messages=PENDING_CHUNKED_MAX,
        expire_time_of_incomplete_chunked_message_s=0.0,
    )


def last_entry(client: geminga.blocking.Client, options: ReadOptions, topic: str) -> Position:
    """The last entry of a topic, BEGIN for one without messages. Nothing is read. Raises
    GemingaError.
    """
    with client.create_reader(
        topic,
        geminga.LATEST,
        receiver_queue_size=1,
        auto_create=False,
        read_compacted=options.read_compacted,
        reader_name=options.reader_name,
        subscription_role_prefix=options.subscription_role_prefix,
    ) as reader:
        last = max(reader.last_message_ids())
    return Position(last.ledger_id, last.entry_id) if last.entry_id >= 0 else BEGIN

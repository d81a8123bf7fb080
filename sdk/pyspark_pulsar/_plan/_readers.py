"""Readers of one topic, opened at a position (spec SP-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import geminga
import geminga.blocking
from geminga import MessageId
from pyspark_pulsar._positions import Position

if TYPE_CHECKING:
    from pyspark_pulsar._options import ReadOptions

PENDING_CHUNKED_MAX = 1000
"""Chunked messages that may be interleaved; a reader of old data meets those of all producers at
once.
"""


def start_id(at: Position, *, read_compacted: bool) -> MessageId:
    """The start id of a reader whose first entry is the one at `at`, or the next one. The caller
    skips the entry's messages before `at`.
    """
    if at.ledger_id < 0 and not read_compacted:
        return geminga.EARLIEST
    # With an id, a reader of a compacted topic knows before the first entry that it has something
    # to read. From EARLIEST it compares the last id with a cursor of the log, which is behind what
    # was trimmed.
    return MessageId(max(0, at.ledger_id), max(0, at.entry_id))


def open_reader(
    client: geminga.blocking.Client,
    options: ReadOptions,
    topic: str,
    at: Position,
    *,
    queue_size: int,
) -> geminga.blocking.Reader:
    """A reader whose first entry is the one at `at`, or the next one. The caller closes it. Raises
    GemingaError.

    Entries that can't be decrypted are returned as they are: the caller must check.
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

"""Deleting the ledgers that a log's metadata list (spec BR-04).

Properties of topics and of subscriptions stand beside those lists. Apache's broker, which serves
the same topics before or after ours, lets clients choose names and values of properties: without a
look at a ledger, who may make a topic could have any ledger of the cluster deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.errors import NoSuchLedger
from geminga_broker.log.options import COMPONENT, LOG_NAME
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.topic_name import TopicName

_log = logging.getLogger(__name__)

COMPACTED = b"compacted-ledger"
"""Component of compacted ledgers, whose topic is in `COMPACTED_TOPIC`."""
COMPACTED_TOPIC = "pulsar/compactedTopic"
_LOGS = b"managed-ledger"


async def delete_own(client: BookkeeperClient, log_name: str, ledger_id: int) -> None:
    """Delete a ledger of the log, of its cursors or of its compaction; another one stays, with a
    warning. Idempotent. Raises MetadataError.
    """
    try:
        about = (await client.metadata(ledger_id)).custom_metadata
    except NoSuchLedger:
        return
    except RemoteProtocolError:
        about = {}  # nobody can read it, and nobody else made it so
    if is_own(about, log_name):
        await client.delete(ledger_id)
    else:
        _log.warning("log=%s: ledger %d is not its own, and stays", log_name, ledger_id)


def is_own(about: Mapping[str, bytes], log_name: str) -> bool:
    """Whether a ledger's custom metadata say so. Those of old brokers say nothing."""
    if LOG_NAME in about:
        return about[LOG_NAME] == log_name.encode()
    if COMPACTED_TOPIC not in about:
        return about.get(COMPONENT, _LOGS) == _LOGS
    try:
        topic = TopicName.parse(about[COMPACTED_TOPIC].decode())
    except (LocalProtocolError, UnicodeDecodeError):
        return False
    return topic.persistence_naming_encoding == log_name

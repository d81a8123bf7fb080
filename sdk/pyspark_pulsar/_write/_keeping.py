"""Checks that something retains the messages of a write (spec SP-06).

A broker retains messages for subscriptions, or by the retention policy. A topic with neither loses
its messages ledger by ledger, and is deleted once it is idle.
"""

from __future__ import annotations

import logging
from typing import Any

import geminga.blocking
from geminga import TopicNotFoundError
from pyspark_pulsar._names import full_name
from pyspark_pulsar._options._write_options import WriteOptions
from pyspark_pulsar._rest import ask_rest, path_of
from pyspark_pulsar.errors import InvalidOption

logger = logging.getLogger("pyspark_pulsar")

_LOSS = (
    "the broker deletes its messages, and the topic itself a minute or two after it was last used "
    "(brokerDeleteInactiveTopicsEnabled). Set the namespace's retention, or create a subscription "
    "(pulsar.producer.initialSubscriptionName creates one with the topic)"
)


def is_there(client: geminga.blocking.Client, topic: str) -> bool:
    """Whether the topic exists; doesn't create it. Raises GemingaError."""
    try:
        client.list_partitions(topic, auto_create=False)
    except TopicNotFoundError:
        return False
    return True


def warn_if_unkept(client: geminga.blocking.Client, options: WriteOptions, *, is_new: bool) -> None:
    """Warn if the topic has neither subscription nor retention, as far as known: by REST, else for
    a topic that the write has just created. Raises InvalidOption if `admin.url` fails.
    """
    topic = full_name(str(options.topic))
    if options.client.admin_url is not None:
        parts = client.list_partitions(topic, auto_create=False)
        if _is_unkept(options, topic, is_partitioned=parts != [topic]):
            logger.warning("topic %s has neither a subscription nor retention: %s", topic, _LOSS)
    elif is_new and options.producer.initial_subscription_name is None:
        logger.warning(
            "topic %s was just created and has no subscription: unless its namespace has "
            "retention, "
            "%s. Set admin.url to have retention checked",
            topic,
            _LOSS,
        )


def _is_unkept(options: WriteOptions, topic: str, *, is_partitioned: bool) -> bool:
    path = path_of(topic)
    stats = _asked(options, f"{path}/{'partitioned-stats' if is_partitioned else 'stats'}", topic)
    retention = _asked(options, f"{path}/retention?applied=true", topic)
    if stats is None or stats.get("subscriptions") or retention is None:
        return False
    return not (
        retention.get("retentionTimeInMinutes", 0) and retention.get("retentionSizeInMB", 0)
    )


def _asked(options: WriteOptions, path: str, topic: str) -> dict[str, Any] | None:
    """A JSON object, None if the role or broker doesn't allow it."""
    code, answer = ask_rest(options.client, path, topic)
    if code in (401, 403, 404, 405, 412):
        logger.info("%s: %s answers %d", topic, path, code)
        return None
    if code != 200 or not isinstance(answer, dict):
        raise InvalidOption("admin.url", f"answers {code} for {topic}")
    return answer

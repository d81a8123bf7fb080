"""Whether a log is still ours: the one question of all that confirm without a write of its node
(spec CL-04, decision 36).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

import trio

from geminga_broker.log.api import LogError
from geminga_broker.log.context import LogContext
from geminga_runtime.background import side_by_side
from geminga_runtime.metadata.api import MetadataError, MetadataStore

_log = logging.getLogger(__name__)

CHECKED_AT_ONCE_MAX = 16
"""Logs whose claims are checked at a time."""

RETRY_S = 1.0
"""Between two attempts while the metadata store can't answer."""


class LogClaim:
    """A broker's claim to one log, made when it loaded it.

    Changes of nodes need no question: they are compare-and-sets, which conflict. What has no change
    of its own asks here first.
    """

    def __init__(self, context: LogContext) -> None:
        self._context = context

    async def verify(self) -> None:
        """Returns if no other broker had claimed the log when this began. Raises LogFenced, after
        fencing the log; LogClosed, and MetadataError if the store can't tell.
        """
        async with self._context.mutex:
            await self._context.verify()


class Claimed(Protocol):
    """What has a claim."""

    claim: LogClaim


async def check_claims(store: MetadataStore, logs: Iterable[Claimed], epoch: int) -> None:
    """Verify these logs' claims, until all are answered or the session of that epoch ends too."""

    async def check(log: Claimed) -> None:
        while store.session.epoch == epoch:
            try:
                await log.claim.verify()
            except LogError:
                pass  # fenced now, or closed
            except MetadataError as error:
                _log.debug("a claim can't be checked yet: %s", error)
                await trio.sleep(RETRY_S)
                continue
            return

    await side_by_side([partial(check, log) for log in logs], CHECKED_AT_ONCE_MAX)

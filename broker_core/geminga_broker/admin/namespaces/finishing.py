"""Finishes interrupted deletions of namespaces and partitioned topics (decision 44)."""

from __future__ import annotations

import logging
from functools import partial

import trio

from geminga_broker.admin import rest
from geminga_broker.admin.calls import Calls
from geminga_broker.admin.namespaces.deletion import delete_marked
from geminga_broker.admin.topics.partitioned import Refused, delete_partitioned
from geminga_broker.cluster.deletions import Noted, Resumed
from geminga_broker.cluster.records import ResourceError, ResourceInUse, ResourceMissing
from geminga_broker.errors import BrokerError
from geminga_broker.schema.model import SchemaStorageFailed
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import run_guarded
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata.api import BadVersion, MetadataError

_log = logging.getLogger(__name__)

CHECK_S = 60.0
"""How often notes are looked at."""
DELETION_S = 60.0
"""A younger deletion is left alone, if other brokers live: its own may have lost its session."""
RETRY_S = 5.0
"""Until the next look, after a deletion that couldn't be finished; twice as long each time."""
REGISTERED_S = 0.5

_TROUBLE = rest.RestError, ResourceError, BrokerError, SchemaStorageFailed, MetadataError


class DeletionFinisher:
    """One broker's part: it finishes what it began in an earlier life, and as the leader what dead
    brokers began.
    """

    def __init__(self, service: BrokerService, calls: Calls) -> None:
        self._service = service
        self._calls = calls

    async def run(self) -> None:
        """Until cancelled. Begins once other brokers can see that this one lives."""
        while not await self._is_registered():  # noqa: ASYNC110 - a registration has no event
            await trio.sleep(REGISTERED_S)
        retry_s = RETRY_S
        while True:
            done: list[bool] = []
            await run_guarded(self._turn, done)
            if all(done):
                retry_s = RETRY_S
                await trio.sleep(CHECK_S)
            else:
                await trio.sleep(retry_s)
                retry_s = min(2 * retry_s, CHECK_S)

    async def _is_registered(self) -> bool:
        try:
            return await self._service.brokers.is_own(self._service.addresses.broker_id)
        except MetadataError:
            return False

    async def _turn(self, done: list[bool]) -> None:
        try:
            done.append(await self.finish())
        except MetadataError as error:
            _log.warning("interrupted deletions can't be looked for: %s", error)

    async def finish(self) -> bool:
        """Finish what dead brokers began; returns whether nothing of it is left. Raises
        MetadataError.
        """
        done = True
        for noted in await self._service.namespaces.deletions.noted():
            if await self._is_abandoned(noted):
                done = await self._finish(noted) and done
        return done

    async def _is_abandoned(self, noted: Noted) -> bool:
        service, note = self._service, noted.note
        own_id = service.addresses.broker_id
        if note.broker == own_id:
            return not service.namespaces.deletions.is_running(note)
        if not service.election.is_leader:
            return False
        living = await service.brokers.ids()
        if note.broker in living:
            return False
        is_alone = not set(living) - {own_id}
        return is_alone or noted.mtime_ms < wall_clock_ms() - DELETION_S * 1000

    async def _finish(self, noted: Noted) -> bool:
        name, force = noted.note.name, noted.note.force
        resumed = Resumed(noted.version, partial(_is_refusal, force))
        try:
            if "://" in name:
                await delete_partitioned(
                    self._service, self._calls, TopicName.parse(name), force=force, resumed=resumed
                )
            else:
                await self._service.namespaces.forget_missing(name)
                await delete_marked(self._service, self._calls, name, force=force, resumed=resumed)
        except ResourceMissing:
            return True  # it was complete, or undone
        except BadVersion as error:
            _log.info("%s: another broker finishes its deletion: %s", name, error)
            return True
        except _TROUBLE as error:
            if _is_refusal(force, error):
                _log.warning("%s: its interrupted deletion is undone: %s", name, error)
                return True
            _log.warning("%s: its deletion can't be finished yet: %s", name, error)
            return False
        except Exception:  # of a damaged record, say: others' deletions don't wait for it
            _log.exception("defect: %s: its deletion can't be finished yet", name)
            return False
        _log.info("%s: finished its interrupted deletion", name)
        return True


def _is_refusal(force: bool, error: BaseException) -> bool:
    """Whether the deletion, which was not forced, is of something that is in use now."""
    return not force and isinstance(error, Refused | ResourceInUse)

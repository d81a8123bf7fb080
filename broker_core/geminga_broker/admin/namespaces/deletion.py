"""Deletion of a namespace, empty or with all its topics (`NamespacesBase`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from geminga_broker.admin import rest
from geminga_broker.admin.calls import Answer, Call, Calls, each_of, raise_first
from geminga_broker.admin.topics.partitioned import Refused, delete_partitioned
from geminga_broker.admin.topics.routes import topic_names
from geminga_broker.cluster.catalog import without_system
from geminga_broker.cluster.deletions import Resumed
from geminga_broker.cluster.records import ResourceChanged, ResourceInUse, ResourceMissing
from geminga_broker.service import BrokerService
from geminga_protocol.topic_name import TopicName

_log = logging.getLogger(__name__)

NOT_EMPTY = "Cannot delete non empty namespace"


async def delete_namespace(
    service: BrokerService, calls: Calls, namespace: str, *, force: bool = False
) -> None:
    """Delete an empty namespace, or by `force` one with all its topics, wherever these are.

    No broker makes a topic in it meanwhile: as in Apache its record is marked. After a failure the
    mark is removed; if the process is killed, the deletion is finished later (`finishing`). Raises
    RestError as Apache answers.
    """
    if force and not service.config.topics.force_delete_namespaces:
        raise rest.RestError(405, "Broker doesn't allow forced deletion of namespaces")
    if not await service.namespaces.tenants.exists(namespace):
        raise rest.RestError(404, f"Namespace {namespace} does not exist.")
    if not force:
        await _require_empty(service, calls, namespace)
    try:
        await delete_marked(service, calls, namespace, force=force)
    except ResourceMissing:
        raise rest.RestError(404, f"Namespace {namespace} does not exist.") from None
    except ResourceInUse:
        raise rest.RestError(409, NOT_EMPTY) from None
    except ResourceChanged:
        text = f"The deletion of {namespace} was ended by another call"
        raise rest.RestError(409, text) from None


async def delete_marked(
    service: BrokerService,
    calls: Calls,
    namespace: str,
    *,
    force: bool,
    resumed: Resumed | None = None,
) -> None:
    """Mark the namespace and delete it. Raises RestError, ResourceInUse, ResourceChanged, and the
    errors of `Deletions.marked`.
    """
    async with service.namespaces.being_deleted(namespace, force=force, resumed=resumed):
        if force:
            await _delete_topics(service, calls, namespace, without_system)
        # Once more: until the mark was set, topics could be made.
        await _require_empty(service, calls, namespace)
        await _delete_topics(service, calls, namespace, list)
        await _release_bundles(service, calls, namespace)
        await service.namespaces.check_being_deleted(namespace)
        await service.schemas.delete_namespace(namespace)
        await service.namespaces.delete_marked(namespace)


async def _require_empty(service: BrokerService, calls: Calls, namespace: str) -> None:
    for domain in ("persistent", "non-persistent"):
        if without_system(await service.catalog.partitioned(namespace, domain)) or without_system(
            await topic_names(service, calls, namespace, domain)
        ):
            raise Refused(409, NOT_EMPTY)


async def _delete_topics(
    service: BrokerService,
    calls: Calls,
    namespace: str,
    among: Callable[[list[str]], list[str]],
) -> None:
    """Delete the topics that `among` chooses, despite connected clients. Policies go before the
    system topic that holds them.
    """

    async def delete(text: str) -> Answer:
        await service.namespaces.check_being_deleted(namespace)
        return await calls.on_topic(TopicName.parse(text), Call("DELETE", "", query="force=true"))

    for domain in ("persistent", "non-persistent"):
        for text in among(await service.catalog.partitioned(namespace, domain)):
            await service.namespaces.check_being_deleted(namespace)
            with suppress(ResourceMissing):
                await delete_partitioned(service, calls, TopicName.parse(text), force=True)
        names = among(await topic_names(service, calls, namespace, domain))
        raise_first(await each_of(delete, names), but=404)


async def _release_bundles(service: BrokerService, calls: Calls, namespace: str) -> None:
    """Bundles of a missing namespace need no owners. One that stays is given up later."""
    for answer in await calls.on_bundles(namespace, Call("DELETE", "")):
        if answer.is_error:
            _log.warning("namespace=%s: a bundle keeps its owner: %s", namespace, answer.reason)

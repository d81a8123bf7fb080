"""A broker's process beneath a parent that has the metadata store and the bookie (spec CL-15)."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.local.client import UNANSWERED_BYTES_MAX, open_local_bookie
from geminga_broker.broker import LOAD_BALANCE
from geminga_broker.cluster.records import RECORDS
from geminga_broker.config import MIB, BrokerConfig
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.ownership.records import OWNERS_PATH
from geminga_broker.process import (
    GivenSockets,
    Running,
    WebSockets,
    log_options,
    serving,
    until_told_to_stop,
)
from geminga_broker.processes import messages
from geminga_broker.processes.messages import Begin, Descriptors, Refused, Serving
from geminga_broker.service import open_service
from geminga_broker.standalone_parts import BOOKIE_ID
from geminga_runtime.command_line import PRIVATE_UMASK
from geminga_runtime.errors import BindFailed, ConnectFailed, ConnectionLost
from geminga_runtime.lasting import open_lasting_nursery
from geminga_runtime.metadata.api import MetadataError, MetadataStore, SessionPhase
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.remote import Dial, open_remote_store
from geminga_runtime.metadata.timed import TimedMetadataStore
from geminga_runtime.metrics.store_times import OWN_STORE
from geminga_runtime.observing.log_setup import set_up_logging
from geminga_runtime.process import run_part
from geminga_runtime.settings import ConfigError
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

LOST_CODE = 1
REFUSED_CODE = 2


class Stopped(Exception):
    """The parent has asked for the end."""


def run_member(end: socket.socket) -> int:
    """Run the broker that the parent describes over this connection; returns the exit code."""
    control = messages.stream_of(end.dup(), "the parent")

    def announce(running: Running) -> None:
        control.write(messages.message(Serving(running.urls)))

    refusals = BindFailed, ConfigError, MetadataError, Stopped
    refused = run_part(partial(run_broker, control), announce, *refusals)
    if refused is None or isinstance(refused, Stopped):
        return 0
    with suppress(OSError):
        end.sendall(messages.message(Refused(str(refused))))
    return REFUSED_CODE


async def run_broker(
    control: FramedStream, *, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled, or until the parent or an administrator says so: then raises Stopped.
    Ends the process at once when the parent is gone, and so all data.
    """
    begun: Promise[Begin] = Promise()
    async with open_lasting_nursery() as nursery:
        nursery.start_soon(control.run_writer)
        with trio.CancelScope() as scope:
            nursery.start_soon(_hear, control, begun, scope)
            begin = await begun.wait()
            os.umask(PRIVATE_UMASK)
            set_up_logging(begin.logs, begin.name)
            async with open_broker(begin) as running:
                task_status.started(running)
                await until_told_to_stop(running.service, scope)
        raise Stopped


async def _hear(control: FramedStream, begun: Promise[Begin], scope: trio.CancelScope) -> None:
    """Do what the parent says; the process ends when the parent does."""
    received = messages.to_broker()
    with suppress(ConnectionLost):
        while data := await control.receive():
            for _, said, _ in received.feed(data):
                if isinstance(said, Begin):
                    begun.resolve(said)
                else:
                    scope.cancel()
    os._exit(LOST_CODE)


@asynccontextmanager
async def open_broker(begin: Begin) -> AsyncIterator[Running]:
    """The broker on the parent's metadata store and bookie. Raises ConfigError, MetadataError."""
    config, given = begin.config, begin.descriptors
    metadata = messages.stream_of(socket.socket(fileno=given.metadata), "metadata store")
    entries = messages.stream_of(socket.socket(fileno=given.bookie), "bookie")
    async with AsyncExitStack() as stack:
        store: MetadataStore = await stack.enter_async_context(open_remote_store(_once(metadata)))
        lasting = await stack.enter_async_context(open_lasting_nursery())
        lasting.start_soon(_end_with_session, store)
        store = TimedMetadataStore(store, OWN_STORE)
        for subtree in (RECORDS, OWNERS_PATH, LOAD_BALANCE):
            store = await CachedMetadataStore.open(store, subtree)
            stack.push_async_callback(store.aclose)
        bookie = await stack.enter_async_context(
            open_local_bookie(BOOKIE_ID, entries, _unanswered_bytes(config))
        )
        client = BookkeeperClient(KnownBookies([bookie]), store)
        logs = await stack.enter_async_context(
            ManagedLedgerFactory(client, store, log_options(config))
        )
        service = await stack.enter_async_context(open_service(config, store, logs))
        web, beside = _sockets(given)
        served = serving(config, service, web, is_whole_cluster=False, given=beside)
        running = await stack.enter_async_context(served)
        await stack.enter_async_context(service.load_manager.registered(running.addresses))
        yield running


def _once(stream: FramedStream) -> Dial:
    """There is one connection for the life of the process."""
    left = [stream]

    async def dial(_deadline: float) -> FramedStream:
        await trio.lowlevel.checkpoint()
        if not left:
            raise ConnectFailed("the parent's connection has ended")
        return left.pop()

    return dial


async def _end_with_session(store: MetadataStore) -> None:
    """Others may own our bundles from now on, and clients must look them up anew."""
    session = await store.wait_change(store.session.epoch)
    if session.phase is not SessionPhase.CLOSED:
        _log.error("the session with the metadata store is lost: the process ends")
        os._exit(LOST_CODE)


def _unanswered_bytes(config: BrokerConfig) -> int:
    """Twice what clients may have published without a receipt."""
    publish_mb = config.network.publish_buffer_mb_max
    return max(UNANSWERED_BYTES_MAX, 2 * publish_mb * MIB) if publish_mb >= 0 else 1 << 50


def _sockets(given: Descriptors) -> tuple[WebSockets, GivenSockets]:
    broker, broker_tls, web, web_tls = (
        [socket.socket(fileno=fd) for fd in each]
        for each in (given.broker, given.broker_tls, given.web, given.web_tls)
    )
    own = WebSockets(_first(web), _first(web_tls))
    return own, GivenSockets(broker, broker_tls, web[1:], web_tls[1:])


def _first(sockets: Sequence[socket.socket]) -> socket.socket | None:
    return sockets[0] if sockets else None

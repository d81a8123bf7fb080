"""A broker that is started, killed, stopped and started again over one disk and one network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.inprocess import open_bookie
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.config import BrokerConfig
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService
from geminga_broker.session.serving import handle_connection
from geminga_runtime.stream import FramedStream

from .disk import BookieDoor, Disk, MetadataDoor
from .network import Cut, Network

URL = "pulsar://broker:6650"
WAIT_S = 1.0
"""How long a kill waits for its step of the disk."""
Serve = Callable[[FramedStream, BrokerService], object]


class Life:
    """One life of the broker: from its start until it is killed or has stopped."""

    def __init__(self, service: BrokerService, door: BookieDoor, metadata: MetadataDoor) -> None:
        self.service = service
        self.door = door
        self.metadata = metadata
        self.scope = trio.CancelScope()


class Cluster:
    """The broker of the run; `life` is None while there is none."""

    def __init__(
        self, config: BrokerConfig, disk: Disk, network: Network, nursery: trio.Nursery
    ) -> None:
        self.config = config
        self.disk = disk
        self.network = network
        self.life: Life | None = None
        self.lives = 0
        self._nursery = nursery
        self._ended = trio.Event()
        """The last life has."""

    @property
    def service(self) -> BrokerService:
        """The living broker."""
        assert self.life is not None, "there is no broker"
        return self.life.service

    async def start(self) -> None:
        """Return when clients can connect."""
        self.lives += 1
        self.disk.log.add(f"broker starts, life {self.lives}")
        self._ended = trio.Event()
        self.life = await self._nursery.start(self._run)
        self.disk.log.add("broker serves")

    async def _run(self, *, task_status: trio.TaskStatus[Life]) -> None:
        disk = self.disk
        async with trio.open_nursery() as nursery:
            metadata = MetadataDoor(disk)
            ledgers = LedgerMetadataStore(metadata).ids
            async with open_bookie(
                disk.options, ledgers, metadata=metadata, host=disk.host(nursery)
            ) as bookie:
                door = BookieDoor(disk, bookie, nursery)
                await self._live(door, metadata, nursery, task_status)
            nursery.cancel_scope.cancel()
        self._ended.set()

    async def _live(
        self,
        door: BookieDoor,
        metadata: MetadataDoor,
        nursery: trio.Nursery,
        task_status: trio.TaskStatus[Life],
    ) -> None:
        client = BookkeeperClient(KnownBookies([door]), metadata)
        async with ManagedLedgerFactory(client, metadata, log_options(self.config)) as logs:
            service = BrokerService(self.config, metadata, logs, nursery)
            life = Life(service, door, metadata)
            with life.scope:
                nursery.start_soon(service.run)
                await service.start(Addresses(URL, "http://broker:8080"))
                self.network.listen(partial(self._serve, service), nursery)
                task_status.started(life)
                await trio.sleep_forever()
            if door.is_closed:
                # As if cancelled from outside: nothing is closed in order.
                nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()

    @staticmethod
    async def _serve(service: BrokerService, stream: FramedStream) -> None:
        try:
            await handle_connection(stream, service)
        finally:
            await stream.aclose()

    async def kill(self, how: Cut, *, power: bool = False, steps: int = 0) -> None:
        """The process is gone, and everything that was only in its memory; with `power` also what
        was not synced. In so many steps of the disk, if they come soon; 0: at once."""
        life, files = self.life, self.disk.files
        if life is None:
            return
        if steps:
            files.crashed = lambda: self._die(life, how)
            files.crash_at = files.steps + steps
            with trio.move_on_after(WAIT_S):
                await self._ended.wait()
        self._die(life, how)
        await self._ended.wait()
        self.disk.log.add("power is back" if power else "killed")
        if power:
            files.start_after_power_loss()
        else:
            files.start_after_kill()

    def _die(self, life: Life, how: Cut) -> None:
        if self.life is life:
            self.life = None
            self.disk.log.add("broker dies")
            self.disk.files.stop()
            life.door.close()
            life.metadata.close()
            self.network.close(how)
            life.scope.cancel()

    async def stop(self) -> None:
        """An orderly stop: topics are unloaded, clients told."""
        life, self.life = self.life, None
        if life is None:
            return
        self.disk.log.add("broker stops")
        self.network.listener = None
        with trio.move_on_after(life.service.shutdown_s):
            await life.service.shutdown()
        life.scope.cancel()
        await self._ended.wait()
        self.network.close(Cut.RESET)
        self.disk.log.add("broker has stopped")

"""The composition root of a standalone with several broker processes: metadata store and bookie
(spec CL-15).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import trio

from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.local.server import serve_local
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.config import BrokerConfig
from geminga_broker.metadata_loss import DataAge
from geminga_broker.processes.sockets import Listeners, addresses, bind_service, own_ports
from geminga_broker.processes.supervisor import BrokerPlan, BrokerProcess, Services
from geminga_broker.standalone_parts import StandaloneOptions, bookie_options, open_store
from geminga_runtime.metadata.api import MetadataStore
from geminga_runtime.metadata.remote_server import serve_session
from geminga_runtime.observing.log_setup import settings_in_use
from geminga_runtime.settings import ConfigError
from geminga_runtime.tls_settings import NO_PORT


@dataclass(frozen=True, slots=True)
class RunningBrokers:
    """A service of several brokers."""

    addresses: Addresses
    brokers: tuple[BrokerProcess, ...]

    @property
    def broker_url(self) -> str:
        """The address of the binary protocol."""
        return self.addresses.broker_url

    @property
    def web_url(self) -> str:
        """The address of the REST API."""
        return self.addresses.web_url

    @property
    def urls(self) -> list[str]:
        """All configured addresses."""
        found = self.addresses
        every = found.broker_url, found.broker_url_tls, found.web_url, found.web_url_tls
        return [url for url in every if url]


async def run_brokers(
    options: StandaloneOptions,
    *,
    task_status: trio.TaskStatus[RunningBrokers] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `task_status` is set when all brokers serve.

    When cancelled, it stops the brokers, then closes the bookie. Raises BindFailed, ConfigError,
    BrokerRefused, DataDirUnusable, and the storage's errors for an unusable directory.
    """
    config = options.config
    if config.network.advertised_listeners:
        raise ConfigError(
            "advertisedListeners: each of several brokers has ports of its own: set "
            "advertisedAddress instead, and --first-own-port"
        )
    if max(config.tls.broker_service_port, config.tls.web_service_port) > NO_PORT:
        config.tls.check()  # raise ConfigError before anything is created
    async with AsyncExitStack() as stack:
        service = stack.enter_context(bind_service(config))
        ports = own_ports(config, options.first_own_port, options.brokers)
        store = await open_store(options)
        stack.push_async_callback(store.aclose)
        brokers = _spawned(config, service, ports, stack)  # they import while the bookie opens
        address = addresses(config, service)
        await _bootstrap(store, config, address)
        ledgers = LedgerMetadataStore(store).ids
        bookie = await stack.enter_async_context(
            open_bookie(
                bookie_options(options),
                ledgers,
                metadata=store,
                age=DataAge(store, options.data_dir),
            )
        )
        services = Services(partial(serve_session, store), partial(serve_local, bookie))
        async with trio.open_nursery() as nursery:
            for each in brokers:
                nursery.start_soon(each.run, services)
            for each in brokers:
                await each.serving.wait()
            task_status.started(RunningBrokers(address, brokers))
            await trio.sleep_forever()


def _spawned(
    config: BrokerConfig,
    service: Listeners,
    ports: Sequence[list[int | None]],
    stack: AsyncExitStack,
) -> tuple[BrokerProcess, ...]:
    logs = settings_in_use()
    brokers: list[BrokerProcess] = []
    for number, own in enumerate(ports, 1):
        broker = BrokerProcess(BrokerPlan(f"broker-{number}", config, logs, service, own))
        stack.callback(broker.abandon)
        broker.spawn()
        brokers.append(broker)
    return tuple(brokers)


async def _bootstrap(store: MetadataStore, config: BrokerConfig, address: Addresses) -> None:
    urls = {
        "serviceUrl": address.web_url,
        "serviceUrlTls": address.web_url_tls,
        "brokerServiceUrl": address.broker_url,
        "brokerServiceUrlTls": address.broker_url_tls,
    }
    await Namespaces(store).bootstrap(
        config.network.cluster_name,
        {name: url for name, url in urls.items() if url},
        config.topics.namespace_bundles,
    )

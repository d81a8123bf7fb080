"""Apache Pulsar's servers on free ports, with little memory: standalone with a real fsync, and a
broker on a ZooKeeper and its bookies.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from compat_tests.apache.jars import java_command
from compat_tests.apache.links import LOOPBACK, Place
from compat_tests.processes import ServerProcess, free_port, spawn, wait_until

_SETTINGS = {
    "metadataStoreUrl": "",
    "configurationMetadataStoreUrl": "",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "clusterName": "standalone",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "allowAutoTopicCreation": "true",
    "allowAutoTopicCreationType": "non-partitioned",
    "journalSyncData": "true",
    # Geminga has none. With them, Apache's broker makes topics of its own at times of its own.
    "transactionCoordinatorEnabled": "false",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "allowLoopback": "true",
    # A bookie of its own accord takes frames of 5 MiB, less than the largest message needs.
    "nettyMaxFrameSizeBytes": "5253120",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.99",
}
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"


def standalone_settings(
    settings: Mapping[str, str], broker_port: int, web_port: int
) -> dict[str, str]:
    """All that a standalone of the tests is told, with some settings of one's own."""
    ports = {"brokerServicePort": str(broker_port), "webServicePort": str(web_port)}
    return {**_SETTINGS, **settings, **ports}


def start_apache(
    work_dir: Path,
    *,
    settings: Mapping[str, str] | None = None,
    broker_port: int = 0,
    web_port: int = 0,
    heap_mb: int = 1024,
    timeout_s: float = 200.0,
    wait_ready: bool = True,
    lean: bool = True,
) -> ServerProcess:
    """Start Apache's standalone in a folder (its data stay there) and wait until it is healthy.

    With ``wait_ready=False`` it is returned while still starting. Raises PeerMissing, StartError.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    broker_port, web_port = broker_port or free_port(), web_port or free_port()
    every = standalone_settings(settings or {}, broker_port, web_port)
    config = work_dir / "standalone.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
    arguments = ["--config", str(config), "--no-functions-worker", "--no-stream-storage"]
    starter = "org.apache.pulsar.PulsarStandaloneStarter"
    command = java_command(starter, arguments, heap_mb=heap_mb, lean=lean)
    began = time.monotonic()
    server = _spawned(command, work_dir, broker_port, web_port)
    if wait_ready:
        _wait_healthy(server, timeout_s)
        server.ready_s = time.monotonic() - began
        # The last thing that the starter makes, when the broker serves already.
        _wait(server, lambda: _answers(server, "/admin/v2/namespaces/pulsar/system"), timeout_s)
    return server


def start_apache_broker(
    work_dir: Path,
    metadata_url: str,
    *,
    settings: Mapping[str, str] | None = None,
    broker_port: int = 0,
    web_port: int = 0,
    timeout_s: float = 120.0,
    lean: bool = True,
    place: Place = LOOPBACK,
) -> ServerProcess:
    """Start Apache's broker of cluster "c1" on a metadata store (`zk:...`) that is prepared, and on
    the bookies that are registered there; wait until it is healthy. Raises PeerMissing, StartError.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    broker_port, web_port = broker_port or free_port(), web_port or free_port()
    every = {
        "metadataStoreUrl": metadata_url,
        "configurationMetadataStoreUrl": metadata_url,
        "bindAddress": place.host,
        "advertisedAddress": place.host,
        "clusterName": "c1",
        "allowAutoTopicCreationType": "non-partitioned",
        "loadBalancerEnabled": "false",
        **(settings or {}),
        "brokerServicePort": str(broker_port),
        "webServicePort": str(web_port),
    }
    config = work_dir / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
    arguments = ["--broker-conf", str(config)]
    heap_mb = 512 if lean else 1024
    starter = "org.apache.pulsar.PulsarBrokerStarter"
    command = java_command(starter, arguments, heap_mb=heap_mb, lean=lean)
    server = _spawned(command, work_dir, broker_port, web_port, place)
    _wait_healthy(server, timeout_s)
    return server


def _spawned(
    command: list[str], work_dir: Path, broker_port: int, web_port: int, place: Place = LOOPBACK
) -> ServerProcess:
    command[1:1] = [
        f"-Dbookkeeper.metadata.{side}.drivers={_DRIVERS}{side.capitalize()}Driver"
        for side in ("bookie", "client")
    ]
    log_path = work_dir / "apache.log"
    return ServerProcess(
        kind="apache",
        process=spawn([*place.enter, *command], log_path=log_path, cwd=work_dir),
        service_url=f"pulsar://{place.host}:{broker_port}",
        web_url=f"http://{place.host}:{web_port}",
        data_dir=work_dir,
        log_path=log_path,
    )


def _wait_healthy(server: ServerProcess, timeout_s: float) -> None:
    _wait(server, lambda: is_healthy(server), timeout_s)


def _wait(server: ServerProcess, holds: Callable[[], bool], timeout_s: float) -> None:
    """Kills the server, if it doesn't hold in time. Raises StartError."""
    try:
        wait_until(holds, server.process, server.log_path, timeout_s=timeout_s)
    except BaseException:
        server.kill()
        raise


def is_healthy(server: ServerProcess) -> bool:
    """Whether the server's own health check passes."""
    return _answers(server, "/admin/v2/brokers/health")


def _answers(server: ServerProcess, path: str) -> bool:
    """Whether a GET of the path is answered with 200."""
    try:
        with urllib.request.urlopen(f"{server.web_url}{path}", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False

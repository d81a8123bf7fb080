"""A cluster on loopback: ZooKeeper, bookies, and brokers of ours and of Apache's that are started
again on the same ports.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from compat_tests.apache.bookie import ApacheBookie, launch_bookie, start_metadata
from compat_tests.apache.links import LOOPBACK, Links, Place
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.server import start_apache_broker
from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.processes import ROOT, ServerProcess, free_port, spawn, wait_until

START_S = 60.0
SIZES = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
}
_AT_WORK = {"journalMaxSizeMB": "2048", "zkTimeout": "30000"}


@dataclass
class Cluster:
    """ZooKeeper, prepared for cluster "c1", with its bookies."""

    folder: Path
    zookeeper: ZooKeeperServer
    lean: bool = True
    """Java with little memory and the quick compiler, as tests want it."""
    bookies: list[ApacheBookie | OurBookie] = field(default_factory=list)
    ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))
    starts: int = 0
    place: Place = LOOPBACK
    """Of the next broker."""
    links: Links | None = None

    @property
    def url(self) -> str:
        """Of the broker on these ports."""
        return f"pulsar://{self.place.host}:{self.ports[0]}"

    @property
    def broker_id(self) -> str:
        """Of the broker on these ports: host and port of its web service."""
        return f"{self.place.host}:{self.ports[1]}"

    def beside(self, place: Place = LOOPBACK) -> Cluster:
        """The same cluster, for a further broker: with ports of its own, there."""
        ports = free_port(), free_port()
        folder = self.folder / f"beside-{ports[0]}"
        folder.mkdir()
        return replace(self, folder=folder, ports=ports, place=place, starts=0)

    def command(self, folder: Path, settings: Mapping[str, str], *options: str) -> list[str]:
        """Starts our broker."""
        config = folder / "broker.conf"
        every = {**SIZES, "metadataStoreUrl": self.zookeeper.url, "clusterName": "c1", **settings}
        config.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
        return [
            *self.place.enter,
            *(sys.executable, "-m", "geminga.cli", "broker", "--config", str(config)),
            *("--broker-port", str(self.ports[0]), "--web-port", str(self.ports[1])),
            *("--advertised-address", self.place.host, *options),
        ]

    def refusal(self, *options: str, settings: Mapping[str, str] | None = None) -> str:
        """What our broker says that must not start."""
        command = self.command(self._new_folder(), settings or {}, *options)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_S)
        assert done.returncode == 2, done.stderr
        return done.stderr.strip().splitlines()[-1]

    def start_ours(self, settings: Mapping[str, str] | None = None) -> ServerProcess:
        """Our broker, once it says that it is ready. Raises StartError."""
        folder = self._new_folder()
        log = folder / "log"
        process = spawn(self.command(folder, settings or {}), log_path=log, cwd=ROOT)
        web_url = f"http://{self.place.host}:{self.ports[1]}"
        server = ServerProcess("geminga", process, self.url, web_url, folder, log)
        try:
            wait_until(lambda: b"ready in" in log.read_bytes(), process, log, timeout_s=START_S)
        except BaseException:
            server.kill()
            raise
        return server

    def start_apache(self, settings: Mapping[str, str] | None = None) -> ServerProcess:
        """Apache's broker, once it is healthy. Raises StartError."""
        return start_apache_broker(
            self._new_folder(),
            self.zookeeper.url,
            settings={**SIZES, **(settings or {})},
            broker_port=self.ports[0],
            web_port=self.ports[1],
            lean=self.lean,
            place=self.place,
        )

    def _new_folder(self) -> Path:
        self.starts += 1
        folder = self.folder / f"broker-{self.starts}"
        folder.mkdir()
        return folder


@contextmanager
def killed_at_end(
    zookeeper: ZooKeeperServer, bookies: Sequence[ApacheBookie | OurBookie]
) -> Iterator[None]:
    """Whatever happens inside; also the bookies that are added meanwhile."""
    try:
        yield
    finally:
        for bookie in bookies:
            bookie.kill()
        zookeeper.kill()


@contextmanager
def running_cluster(
    folder: Path,
    bookies: int,
    *,
    lean: bool = True,
    ours: int = 0,
    links: Links | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """So many bookies, of which so many, the first, are ours and the others Apache's; all are
    killed at the end. With links each part has its own place: "zookeeper", "bookie-0" (ours only),
    "broker". Raises PeerMissing, StartError.
    """

    def place(name: str) -> Place:
        return links.place(name) if links else LOOPBACK

    zookeeper = start_metadata(folder / "zookeeper", place("zookeeper"))
    found = Cluster(folder, zookeeper, lean, place=place("broker"), links=links)
    with killed_at_end(found.zookeeper, found.bookies):
        for number in range(bookies):
            home = folder / f"bookie-{number}"
            if number < ours:
                every = {**({} if lean else _AT_WORK), **(settings or {})}
                bookie = OurBookie(home, zookeeper, every, place=place(f"bookie-{number}"))
                bookie.start()
                found.bookies.append(bookie)
            else:
                found.bookies.append(launch_bookie(home, found.zookeeper, lean=lean))
        for bookie in found.bookies:
            bookie.wait()
        yield found

"""Faults drawn from a seed, one after the other, on a cluster of processes in network namespaces,
while the official client publishes: `python -m compat_tests.apache.trouble --seconds 300 --seed 1`.

Each fault is over after some seconds, and then messages must have receipts again. After each some
receipts, and at the end all, are read by our SDK and by Apache's ledger client. Prints each fault,
and how long a message has waited meanwhile.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.links import Links, open_links
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.receipts import Publisher, check_in_order, ledger_entries

BOOKIES = 4
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": "3000",
    "bookkeeperClientTimeoutInSeconds": "3",
    "managedLedgerMaxEntriesPerLedger": "2000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
HOLDS_S = (0.2, 2.0, 5.0, 9.0)
"""How long a fault lasts: shorter and longer than time-outs and sessions."""


class Trouble:
    """What goes wrong, on what; each fault returns its end."""

    def __init__(self, cluster: Cluster, links: Links, chance: Random) -> None:
        self._cluster = cluster
        self._links = links
        self._chance = chance
        self._server = cluster.start_ours(SETTINGS)

    def stop(self) -> None:
        """The broker ends."""
        self._server.kill()

    def draw(self) -> tuple[str, Callable[[], None]]:
        """Begin one fault; returns its name, and what ends it."""
        chance = self._chance
        kind = chance.choice(["link", "link", "link", "bookie", "keeper", "broker"])
        if kind == "link":
            return self._link()
        if kind == "bookie":
            return self._bookie()
        if kind == "keeper":
            self._cluster.zookeeper.pause()
            return "pause zookeeper", self._cluster.zookeeper.resume
        self._server.kill()
        return "kill broker", self._restart

    def _restart(self) -> None:
        self._server = self._cluster.start_ours(SETTINGS)

    def _link(self) -> tuple[str, Callable[[], None]]:
        bookies = [f"bookie-{number}" for number in range(BOOKIES)]
        cuts = []
        for _ in range(self._chance.choice((1, 1, 2))):
            a, b = self._chance.sample(["broker", "broker", "zookeeper", *bookies], 2)
            one_way = self._chance.random() < 0.6
            if a != b:
                self._links.cut(a, b, one_way=one_way)
                cuts.append(f"{a} {'->' if one_way else '-'} {b}")
        return f"cut {', '.join(cuts)}", self._links.heal

    def _bookie(self) -> tuple[str, Callable[[], None]]:
        bookie = self._chance.choice(self._cluster.bookies)
        assert isinstance(bookie, OurBookie)
        if self._chance.random() < 0.5:
            bookie.signal(signal.SIGSTOP)
            return f"pause {bookie.bookie_id}", lambda: bookie.signal(signal.SIGCONT)
        bookie.kill()

        def start() -> None:
            bookie.start()
            bookie.wait()

        return f"kill {bookie.bookie_id}", start


def run(seconds: float, seed: int) -> None:
    """Raises AssertionError if a receipt is lost, or nothing gets receipts any more."""
    chance = Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        links = stack.enter_context(open_links())
        cluster = stack.enter_context(running_cluster(folder, BOOKIES, ours=BOOKIES, links=links))
        address = cluster.zookeeper.address
        apaches = stack.enter_context(ledger_entries(address, folder / "apache.log"))
        trouble = Trouble(cluster, links, chance)
        stack.callback(trouble.stop)
        publisher = Publisher(cluster.url)
        stack.callback(publisher.finish)
        publisher.wait_more()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            publisher.longest_s = 0.0
            name, end = trouble.draw()
            hold_s = chance.choice(HOLDS_S)
            time.sleep(hold_s)
            end()
            publisher.wait_more()
            some = dict([*publisher.receipts.items()][-100:])
            apaches.check(some)
            print(f"{name} for {hold_s} s: {len(publisher.receipts)} receipts, one after "
                  f"{publisher.longest_s:.1f} s", flush=True)  # fmt: skip
        publisher.finish()
        check_in_order(cluster.url, publisher.topic, publisher.receipts)
        apaches.check(publisher.receipts)
        print(f"{len(publisher.receipts)} receipts, all read again; {publisher.failures}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Faults drawn from a seed, on real processes.")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    run(given.seconds, given.seed)


if __name__ == "__main__":
    main()

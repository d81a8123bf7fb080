"""Faults drawn from a seed, one after the other, on three of our brokers, while the Java client
sends and receives: `python -m compat_tests.apache.fleet_trouble --seconds 300 --seed 1`.

Brokers are killed, stopped, paused, and cut off from ZooKeeper; bundles are unloaded; ZooKeeper is
slow, or stands still; bookies stand still. Each fault is over after some seconds, and then each
topic must have receipts again. At the end nothing may be lost, twice in a log or out of order.
Prints each fault, and the longest time that a topic had no receipt.
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
from urllib.error import HTTPError

from compat_tests.apache.cluster import running_cluster
from compat_tests.apache.fleet import Fleet, fleet_of
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.traffic import JavaTraffic, java_traffic

BROKERS = range(3)
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": "3000",
    "bookkeeperClientTimeoutInSeconds": "3",
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerMaxEntriesPerLedger": "500",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerDeduplicationEnabled": "true",
}
HOLDS_S = (0.2, 1.0, 2.9, 3.2, 5.0)
"""How long a fault lasts: shorter and longer than sessions."""

End = Callable[[], None]


class Trouble:
    """What goes wrong, on what; each fault returns what ends it."""

    def __init__(self, fleet: Fleet, topics: list[str], chance: Random) -> None:
        self._fleet = fleet
        self._topics = topics
        self._chance = chance
        self._faults = [
            self._kill,
            self._stop,
            self._pause,
            self._cut,
            self._cut,
            self._unload,
            self._slow,
            self._still,
            self._bookie,
        ]

    def draw(self) -> tuple[str, End]:
        """Begin one fault."""
        return self._chance.choice(self._faults)(self._chance.choice(BROKERS))

    def _kill(self, number: int) -> tuple[str, End]:
        self._fleet.kill(number)
        return f"kill {number}", lambda: self._fleet.start(number)

    def _stop(self, number: int) -> tuple[str, End]:
        self._fleet.stop(number)
        return f"stop {number}", lambda: self._fleet.start(number)

    def _pause(self, number: int) -> tuple[str, End]:
        self._fleet.pause(number)
        return f"pause {number}", lambda: self._fleet.resume(number)

    def _cut(self, number: int) -> tuple[str, End]:
        self._fleet.links[number].hold()
        return f"cut {number} off from ZooKeeper", self._fleet.links[number].release

    def _unload(self, number: int) -> tuple[str, End]:
        done = []
        for bundle, owner in self._fleet.bundles(self._topics).items():
            if owner != number and self._chance.random() < 0.7:
                try:
                    self._fleet.unload(bundle, number, asked=number)
                except HTTPError as error:
                    done.append(f"{bundle}: {error.code} {error.read()!r}")
                else:
                    done.append(bundle)
        return f"unload {done} to {number}", lambda: None

    def _slow(self, _number: int) -> tuple[str, End]:
        delay_s = self._chance.choice((0.1, 0.5, 1.0))

        def set_all(seconds: float) -> None:
            for link in self._fleet.links:
                link.delay(seconds)

        set_all(delay_s)
        return f"ZooKeeper {delay_s} s late", lambda: set_all(0)

    def _still(self, _number: int) -> tuple[str, End]:
        zookeeper = self._fleet.seats[0].zookeeper
        zookeeper.pause()
        return "pause ZooKeeper", zookeeper.resume

    def _bookie(self, number: int) -> tuple[str, End]:
        bookie = self._fleet.seats[0].bookies[number]
        assert isinstance(bookie, OurBookie)
        bookie.signal(signal.SIGSTOP)
        return f"pause bookie {number}", lambda: bookie.signal(signal.SIGCONT)


def run(seconds: float, seed: int, folder: Path) -> None:
    """Raises AssertionError."""
    chance = Random(seed)
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder, 3, ours=3))
        fleet = stack.enter_context(fleet_of(cluster, len(BROKERS), SETTINGS))
        fleet.start(*BROKERS)
        traffic = stack.enter_context(java_traffic(fleet.url, folder / "java.log", topics=8))
        trouble = Trouble(fleet, [*traffic.topics, *traffic.alone], chance)
        traffic.more()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            one(trouble, traffic, chance)
        fleet.until(lambda: len(fleet.registered()) == len(BROKERS))
        fleet.until(lambda: fleet.all_wait(traffic.alone))
        print(f"{traffic.end()} messages, all are there once and in order")


def one(trouble: Trouble, traffic: JavaTraffic, chance: Random) -> None:
    """A fault, from its begin until all topics go on."""
    name, end = trouble.draw()
    hold_s = chance.choice(HOLDS_S)
    print(f"{name} for {hold_s} s", end="", flush=True)
    time.sleep(hold_s)
    end()
    print(f": a topic had no receipt for {traffic.more():.1f} s", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Faults drawn from a seed, on several brokers.")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the logs, kept")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        run(given.seconds, given.seed, given.keep)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(given.seconds, given.seed, Path(folder))


if __name__ == "__main__":
    main()

"""Each part of a cluster in a network namespace of its own, on one bridge, so that a test cuts the
link between any two of them, also one way. Needs root and iproute2.

What is cut is dropped by who should receive it: whoever sends sees what a lost packet looks like,
silence. Connections stay, and go on where they were if the link heals in time.
"""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from compat_tests.apache.jars import PeerMissing

_NETWORKS = range(1, 255)
"""Of 10.213.0.0/16: one for each test file that runs now."""

_CUT, _LOCAL = "10", "100"
"""Priorities of routing rules: what is dropped comes before what is delivered to this host."""


class NotPermitted(Exception):
    """We are no root, or one who gets no namespaces."""


@dataclass(frozen=True)
class Place:
    """Where a process runs: its address, and the words that its command line begins with."""

    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


LOOPBACK = Place()


@dataclass
class Links:
    """A bridge, and the namespaces behind it. The tests' own process is on the bridge too."""

    network: int
    _places: dict[str, Place] = field(default_factory=dict)
    _cuts: list[tuple[str, str]] = field(default_factory=list)

    @property
    def _bridge(self) -> str:
        return f"gmg{self.network}"

    def place(self, name: str) -> Place:
        """That part's; made when it is first asked for."""
        if name not in self._places:
            number = len(self._places) + 2
            self._places[name] = place = Place(
                f"10.213.{self.network}.{number}",
                ("nsenter", f"--net=/run/netns/{self._namespace(name)}"),
            )
            self._build(self._namespace(name), f"{self._bridge}-{number}", place)
        return self._places[name]

    def _namespace(self, name: str) -> str:
        return f"{self._bridge}-{name}"

    def _build(self, namespace: str, port: str, place: Place) -> None:
        _ip("netns", "add", namespace)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", port, "master", self._bridge, "up")
        inside = ("-n", namespace)
        _ip(*inside, "address", "add", f"{place.host}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip(*inside, "link", "set", device, "up")
        _ip(*inside, "rule", "add", "pref", _LOCAL, "lookup", "local")
        _ip(*inside, "rule", "del", "pref", "0")

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """What `a` sends doesn't reach `b` any more; nor the other way, unless `one_way`."""
        for sender, receiver in ((a, b), (b, a))[: 1 if one_way else 2]:
            if (sender, receiver) not in self._cuts:
                self._rule("add", sender, receiver)
                self._cuts.append((sender, receiver))

    def heal(self) -> None:
        """All links are whole."""
        while self._cuts:
            self._rule("del", *self._cuts.pop())

    def _rule(self, verb: str, sender: str, receiver: str) -> None:
        source = ("pref", _CUT, "from", self.place(sender).host, "blackhole")
        _ip("-n", self._namespace(receiver), "rule", verb, *source)

    def build(self) -> None:
        """Raises PeerMissing without iproute2, NotPermitted if we get no namespaces."""
        self.remove()  # what a process left that was killed
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("address", "add", f"10.213.{self.network}.1/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            self.place("probe")
            self.place("other")
            self.cut("probe", "other")
            self.heal()
            subprocess.run([*self.place("probe").enter, "true"], check=True, capture_output=True)
        except FileNotFoundError as error:
            raise PeerMissing(f"{error.filename} is not installed") from error
        except subprocess.CalledProcessError as error:
            raise NotPermitted(
                f"{' '.join(error.cmd)}: {error.stderr.decode(errors='replace').strip()}"
            ) from error

    def remove(self) -> None:
        """All namespaces and the bridge. Processes in them keep theirs until they end."""
        # A namespace ends some time after its name, so that its device is removed by itself.
        devices = Path("/sys/class/net")
        for each in (*devices.glob(f"{self._bridge}-*"), *devices.glob(self._bridge)):
            _ip("link", "del", each.name)
        for each in Path("/run/netns").glob(f"{self._bridge}-*"):
            _ip("netns", "del", each.name)
        self._places.clear()
        self._cuts.clear()


@contextmanager
def open_links() -> Iterator[Links]:
    """A network until the block ends. Raises PeerMissing, NotPermitted."""
    number, lock = _claim()
    links = Links(number)
    with lock:
        try:
            links.build()
            yield links
        finally:
            links.remove()


def _claim() -> tuple[int, IO[bytes]]:
    """A network that no living process has: the lock ends with its owner."""
    folder = Path(tempfile.gettempdir())
    for number in _NETWORKS:
        lock = (folder / f"geminga-links-{number}.lock").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
        else:
            return number, lock
    raise RuntimeError(f"all networks are taken; locks in {folder}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

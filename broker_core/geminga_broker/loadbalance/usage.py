"""How busy the broker's machine and its process are (spec CL-07; Apache's LinuxBrokerHostUsageImpl,
LinuxInfoUtils and GenericBrokerHostUsageImpl).

Two figures differ from Apache's, because a broker is a Python process here:

- **CPU**: the interpreter of one process uses one core. So the process's share of one core is
  looked at beside the share of all cores (of its control group, else of the machine), and the
  fuller one is reported: a broker that can do no more is at 100%, also on a machine of 16 cores,
  and brokers on one machine are told apart.
- **Memory and direct memory** are both the resident memory of the process, of the limit of its
  control group, else of the machine: messages are not apart from other objects. Apache's brokers
  leave the heap out when they look for the fullest resource, and take the direct memory.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from geminga_broker.loadbalance.model import ResourceUsage, SystemResourceUsage, per_second

_log = logging.getLogger(__name__)

MIB = 1 << 20
NET = "/sys/class/net"
CGROUP = "/sys/fs/cgroup"
ETHERNET = "1"
"""`type` of an interface (ARPHRD_ETHER); wireless ones tell no speed and are left out."""

_UP = frozenset({"up", "unknown", "dormant"})
_NO_LIMIT_BYTES = 1 << 60
"""Control groups of version 1 write a number above this for no limit."""


class CpuTimes(NamedTuple):
    """Time that was used, and that could be: sums of all cores, in one unit."""

    busy: float
    total: float


class Reading(NamedTuple):
    """What is counted since the boot, at one time."""

    at_s: float
    cores: float
    """How many cores may be used; a control group may allow parts of one."""
    times: CpuTimes
    """Of the control group, or the machine."""
    process_busy_s: float
    nics_kbps_max: float
    """0 if it isn't known."""
    received_kbit: float
    sent_kbit: float
    resident_mib: float
    memory_mib_max: float


class Machine:
    """The operating system, as far as it is read here; tests put files of their own in its place.

    The files are the kernel's memory, so reading them in the loop doesn't hold it up.
    """

    def read(self, path: str) -> str:
        """A file's text. Raises OSError."""
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()

    def names(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted. Raises OSError."""
        return sorted(os.listdir(path))

    def is_virtual(self, interface: str) -> bool:
        """Whether no device stands behind a network interface."""
        return "/virtual/" in os.path.realpath(f"{NET}/{interface}")

    @property
    def cores(self) -> int:
        """Cores that this process may use."""
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    @property
    def memory_bytes(self) -> int:
        """The machine's memory; 0 if it isn't known."""
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):
            return 0

    @property
    def resident_bytes(self) -> int:
        """Memory of this process; its largest so far where the present one can't be told."""
        try:
            return int(self.read("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            import resource

            largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return largest if sys.platform == "darwin" else largest * 1024

    def process_busy_s(self) -> float:
        """CPU time of this process, with all its threads."""
        return time.process_time()


def parse_proc_stat(text: str) -> CpuTimes:
    """The first line of `/proc/stat`; idle and iowait are not busy. Raises ValueError."""
    words = text.partition("\n")[0].split()
    if len(words) < 6 or words[0] != "cpu":
        raise ValueError("no line of all CPUs in /proc/stat")
    # A guest's time is counted in user and nice, too.
    times = [int(word) for word in words[1:9]]
    total = sum(times)
    return CpuTimes(total - times[3] - times[4], total)


def parse_cpu_stat(text: str) -> float:
    """Seconds that a control group of version 2 has used, from `cpu.stat`. Raises ValueError."""
    found = re.search(r"^usage_usec (\d+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError("no usage_usec in cpu.stat")
    return int(found[1]) / 1e6


def parse_cpu_max(text: str) -> float | None:
    """Cores that `cpu.max` allows, None without a limit. Raises ValueError."""
    quota, period = text.split()
    if quota == "max" or int(quota) <= 0 or int(period) <= 0:
        return None
    return int(quota) / int(period)


def parse_own_groups(text: str) -> dict[str, str]:
    """Controller to path of `/proc/self/cgroup`; version 2 has the empty name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            found[controller] = path.rstrip("/")
    return found


class HostUsage:
    """Samples the usage."""

    def __init__(
        self,
        nic_gbps: float | None = None,
        *,
        machine: Machine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`nic_gbps`: the speed of each network interface, if the system's word isn't taken."""
        self._nic_gbps = nic_gbps
        self._machine = machine or Machine()
        self._clock = clock
        self._last: Reading | None = None
        self._told: set[str] = set()
        self.usage = SystemResourceUsage()
        """The last sample; all zeros before the first."""

    def sample(self) -> SystemResourceUsage:
        """Take a sample: rates since the one before. If the clock stood or went back, the last
        sample stays.
        """
        now = self._read()
        last, self._last = self._last, now
        if last is None or now.at_s > last.at_s:
            self.usage = usage_between(last, now)
        return self.usage

    async def run(self, interval_s: float) -> None:
        """Sample until cancelled, the first time at once; the pause is between two samples."""
        while True:
            try:
                self.sample()
            except OSError as error:
                _log.warning("the usage of the machine can't be read: %s", error)
            await trio.sleep(interval_s)

    # ---- what is read ----

    def _read(self) -> Reading:
        machine = self._machine
        groups = self._groups()
        at_s = self._clock()
        cores, times = self._cpu(groups, at_s)
        interfaces = self._interfaces()
        return Reading(
            at_s,
            cores,
            times,
            machine.process_busy_s(),
            self._speed_kbps(interfaces),
            self._kbit(interfaces, "rx_bytes"),
            self._kbit(interfaces, "tx_bytes"),
            machine.resident_bytes / MIB,
            self._memory_bytes(groups) / MIB,
        )

    def _groups(self) -> dict[str, str]:
        try:
            return parse_own_groups(self._machine.read("/proc/self/cgroup"))
        except OSError:
            return {}

    def _of_group(self, groups: dict[str, str], controller: str, name: str) -> str | None:
        """A file of the own control group. In a container its path may be seen from outside: then
        the one at the top is the own one.
        """
        if controller not in groups:
            return None
        base = f"{CGROUP}/{controller}" if controller else CGROUP
        for directory in (base + groups[controller], base):
            try:
                return self._machine.read(f"{directory}/{name}")
            except OSError:
                continue
        return None

    def _cpu(self, groups: dict[str, str], at_s: float) -> tuple[float, CpuTimes]:
        """Usable cores, and how much of them was used."""
        cores = float(self._machine.cores)
        try:
            if (used := self._of_group(groups, "cpuacct", "cpuacct.usage")) is not None:
                quota = self._of_group(groups, "cpu", "cpu.cfs_quota_us")
                period = self._of_group(groups, "cpu", "cpu.cfs_period_us")
                limit = parse_cpu_max(f"{quota} {period}") if quota and period else None
                usable = min(limit or cores, cores)
                return usable, CpuTimes(int(used) / 1e9, at_s * usable)
            if (used := self._of_group(groups, "", "cpu.stat")) is not None:
                allowed = self._of_group(groups, "", "cpu.max")
                limit = parse_cpu_max(allowed) if allowed else None
                usable = min(limit or cores, cores)
                return usable, CpuTimes(parse_cpu_stat(used), at_s * usable)
        except ValueError as error:
            self._tell_once("control group", error)
        try:
            return cores, parse_proc_stat(self._machine.read("/proc/stat"))
        except (OSError, ValueError):
            # Not Linux: what the process itself uses is all that is known.
            return cores, CpuTimes(self._machine.process_busy_s(), at_s * cores)

    def _memory_bytes(self, groups: dict[str, str]) -> int:
        """Memory that the process may use."""
        total = self._machine.memory_bytes
        for controller, name in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
            text = (self._of_group(groups, controller, name) or "").strip()
            if text.isdigit() and 0 < int(text) < _NO_LIMIT_BYTES:
                return min(int(text), total) if total else int(text)
        return total

    def _interfaces(self) -> list[str]:
        """Network interfaces that are up: those with a device, else (in a container) the virtual
        ones.
        """
        found = []
        try:
            names = self._machine.names(NET)
        except OSError:
            return []
        for name in names:
            try:
                kind = self._machine.read(f"{NET}/{name}/type").strip()
                state = self._machine.read(f"{NET}/{name}/operstate").strip()
            except OSError:
                continue
            if kind == ETHERNET and state in _UP:
                found.append(name)
        return [name for name in found if not self._machine.is_virtual(name)] or found

    def _speed_kbps(self, interfaces: list[str]) -> float:
        if self._nic_gbps is not None:
            return self._nic_gbps * len(interfaces) * 1e6
        total = 0.0
        for name in interfaces:
            try:
                # -1 where the driver doesn't know it
                total += max(0, int(self._machine.read(f"{NET}/{name}/speed"))) * 1000.0
            except (OSError, ValueError) as error:
                self._tell_once(name, error)
        if interfaces and not total:
            self._tell_once("NIC", "set loadBalancerOverrideBrokerNicSpeedGbps")
        return total

    def _kbit(self, interfaces: list[str], name: str) -> float:
        total = 0
        for interface in interfaces:
            try:
                total += int(self._machine.read(f"{NET}/{interface}/statistics/{name}"))
            except (OSError, ValueError) as error:
                self._tell_once(f"{interface} {name}", error)
        return total * 8 / 1000

    def _tell_once(self, what: str, why: object) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.info("load report: the limit or usage of %s is not known: %s", what, why)


def usage_between(last: Reading | None, now: Reading) -> SystemResourceUsage:
    """The rates between two readings, in Apache's units: percent of one core, MiB, kbit/s. Without
    an earlier reading rates are 0; so is that of a counter which went back.
    """
    memory = ResourceUsage(now.resident_mib, now.memory_mib_max)
    if last is None:
        last = now
    elapsed_s = now.at_s - last.at_s
    busy = now.times.busy - last.times.busy
    share = per_second(busy, now.times.total - last.times.total) or 0.0
    # Clocks and counters aren't read in the same moment.
    cpu = ResourceUsage(100 * now.cores * min(1.0, share), 100 * now.cores)
    used = per_second(now.process_busy_s - last.process_busy_s, elapsed_s) or 0.0
    # A process can't have more than its group, if that has less than one core.
    own_limit = min(1.0, now.cores)
    own = ResourceUsage(100 * min(used, own_limit), 100 * own_limit)
    received = per_second(now.received_kbit - last.received_kbit, elapsed_s)
    sent = per_second(now.sent_kbit - last.sent_kbit, elapsed_s)
    return SystemResourceUsage(
        cpu=max(cpu, own, key=ResourceUsage.percent),
        memory=memory,
        direct_memory=memory,
        bandwidth_in=ResourceUsage(received or 0.0, now.nics_kbps_max),
        bandwidth_out=ResourceUsage(sent or 0.0, now.nics_kbps_max),
    )

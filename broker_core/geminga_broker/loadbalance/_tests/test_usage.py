"""What is read of the machine, and the samples made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.loadbalance.model import ResourceUsage, SystemResourceUsage
from geminga_broker.loadbalance.usage import (
    MIB,
    CpuTimes,
    HostUsage,
    Machine,
    parse_cpu_max,
    parse_cpu_stat,
    parse_own_groups,
    parse_proc_stat,
)

STAT = "cpu  100 20 30 1000 50 3 7 40 5 6\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1 2\n"
V1 = "4:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n"
V2 = "0::/system.slice/geminga.service\n"


class FakeMachine(Machine):
    """Files of a test."""

    def __init__(self, files: dict[str, str], *, cores: int = 4) -> None:
        self.files = files
        self.own_cores = cores
        self.busy_s = 0.0
        self.resident = 100 * MIB

    def read(self, path: str) -> str:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def names(self, path: str) -> Sequence[str]:
        prefix = f"{path}/"
        found = {name[len(prefix) :].split("/")[0] for name in self.files if prefix in name}
        if not found:
            raise FileNotFoundError(path)
        return sorted(found)

    def is_virtual(self, interface: str) -> bool:
        return not interface.startswith("eth")

    @property
    def cores(self) -> int:
        return self.own_cores

    @property
    def memory_bytes(self) -> int:
        return 8192 * MIB

    @property
    def resident_bytes(self) -> int:
        return self.resident

    def process_busy_s(self) -> float:
        return self.busy_s

    def interface(self, name: str, *, speed: str = "1000", state: str = "up") -> None:
        base = f"/sys/class/net/{name}"
        self.files |= {
            f"{base}/type": "1\n",
            f"{base}/operstate": f"{state}\n",
            f"{base}/speed": f"{speed}\n",
        }
        self.traffic(name, 0, 0)

    def traffic(self, name: str, received: int, sent: int) -> None:
        self.files[f"/sys/class/net/{name}/statistics/rx_bytes"] = f"{received}\n"
        self.files[f"/sys/class/net/{name}/statistics/tx_bytes"] = f"{sent}\n"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_idle_and_iowait_are_not_busy() -> None:
    assert parse_proc_stat(STAT) == CpuTimes(100 + 20 + 30 + 3 + 7 + 40, 1250)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "intr 1 2 3 4 5 6", "cpu a b c d e f"])
def test_a_stat_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_proc_stat(text)


def test_control_groups_are_parsed() -> None:
    assert parse_own_groups(V1) == {
        "memory": "/box",
        "cpu": "/box",
        "cpuacct": "/box",
        "name=systemd": "",
        "": "",
    }
    assert parse_cpu_max("150000 100000\n") == 1.5
    assert parse_cpu_max("max 100000\n") is None
    assert parse_cpu_max("-1 100000") is None
    assert parse_cpu_stat("usage_usec 2500000\nuser_usec 1\n") == 2.5
    with pytest.raises(ValueError):
        parse_cpu_stat("user_usec 1\n")


def test_the_share_of_the_machine() -> None:
    machine = FakeMachine({"/proc/stat": STAT})
    clock = Clock()
    host = HostUsage(machine=machine, clock=clock)
    assert host.sample().cpu == ResourceUsage(0.0, 400.0)
    clock.now_s += 60
    machine.files["/proc/stat"] = "cpu 150 20 30 1050 50 3 7 40 5 6\n"
    # 50 of 100 ticks, of four cores
    assert host.sample().cpu == ResourceUsage(200.0, 400.0)


def test_a_process_that_fills_its_core_is_full() -> None:
    """A Python process can use no more, however many cores stand idle."""
    machine = FakeMachine({"/proc/stat": STAT}, cores=16)
    clock = Clock()
    host = HostUsage(machine=machine, clock=clock)
    host.sample()
    clock.now_s += 60
    machine.busy_s += 57
    machine.files["/proc/stat"] = "cpu 106 20 30 1094 50 3 7 40 5 6\n"
    cpu = host.sample().cpu
    assert cpu.percent() == pytest.approx(95)
    assert cpu.limit == 100


@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_and_its_limits(version: int) -> None:
    if version == 1:
        usage = "/sys/fs/cgroup/cpuacct/box/cpuacct.usage"
        files = {
            "/proc/self/cgroup": V1,
            usage: "0\n",
            "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "150000\n",
            "/sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{512 * MIB}\n",
        }
        used = "45000000000\n"
    else:
        base = "/sys/fs/cgroup/system.slice/geminga.service"
        usage = f"{base}/cpu.stat"
        files = {
            "/proc/self/cgroup": V2,
            usage: "usage_usec 0\n",
            f"{base}/cpu.max": "150000 100000\n",
            f"{base}/memory.max": f"{512 * MIB}\n",
        }
        used = "usage_usec 45000000\n"
    machine, clock = FakeMachine(files), Clock()
    host = HostUsage(machine=machine, clock=clock)
    host.sample()
    clock.now_s += 60
    machine.files[usage] = used
    found = host.sample()
    # 45 s of 60 s, of one and a half cores
    assert found.cpu == ResourceUsage(75.0, 150.0)
    assert found.memory == ResourceUsage(100.0, 512.0)
    assert found.direct_memory == found.memory


def test_in_a_container_the_own_group_is_at_the_top() -> None:
    files = {
        "/proc/self/cgroup": "0::/kubepods/pod1/box1\n",
        "/sys/fs/cgroup/cpu.stat": "usage_usec 0\n",
        "/sys/fs/cgroup/cpu.max": "50000 100000\n",
        "/sys/fs/cgroup/memory.max": "max\n",
    }
    host = HostUsage(machine=FakeMachine(files), clock=Clock())
    found = host.sample()
    assert found.cpu.limit == 50.0
    assert found.memory.limit == 8192.0


def test_a_process_in_half_a_core() -> None:
    """The limit of its group is its own, too."""
    files = {
        "/proc/self/cgroup": "0::/\n",
        "/sys/fs/cgroup/cpu.stat": "usage_usec 0\n",
        "/sys/fs/cgroup/cpu.max": "50000 100000\n",
    }
    machine, clock = FakeMachine(files), Clock()
    host = HostUsage(machine=machine, clock=clock)
    host.sample()
    clock.now_s += 10
    machine.busy_s += 4
    assert host.sample().cpu == ResourceUsage(40.0, 50.0)


def test_bandwidth_of_the_interfaces_with_a_device() -> None:
    machine, clock = FakeMachine({}), Clock()
    machine.interface("eth0")
    machine.interface("eth1", state="down")
    machine.interface("docker0")
    host = HostUsage(machine=machine, clock=clock)
    assert host.sample().bandwidth_in == ResourceUsage(0.0, 1_000_000.0)
    clock.now_s += 10
    machine.traffic("eth0", 1_250_000, 250_000)
    machine.traffic("docker0", 99_000_000, 99_000_000)
    found = host.sample()
    assert found.bandwidth_in == ResourceUsage(1000.0, 1_000_000.0)
    assert found.bandwidth_out == ResourceUsage(200.0, 1_000_000.0)


def test_in_a_container_virtual_interfaces_count() -> None:
    machine = FakeMachine({})
    machine.interface("veth7", speed="10000")
    assert HostUsage(machine=machine, clock=Clock()).sample().bandwidth_in.limit == 10_000_000.0


@pytest.mark.parametrize("speed", ["-1", "", "none"])
def test_a_speed_that_is_not_known(speed: str, caplog: pytest.LogCaptureFixture) -> None:
    machine, clock = FakeMachine({}), Clock()
    machine.interface("eth0", speed=speed)
    host = HostUsage(machine=machine, clock=clock)
    with caplog.at_level("INFO"):
        for _ in range(3):
            clock.now_s += 10
            assert host.sample().bandwidth_in.percent() == 0
    told = [record for record in caplog.records if "OverrideBrokerNicSpeed" in record.message]
    assert len(told) == 1
    assert HostUsage(2.5, machine=machine).sample().bandwidth_out.limit == 2_500_000.0


def test_no_interval_or_a_negative_one_is_no_sample() -> None:
    machine, clock = FakeMachine({"/proc/stat": STAT}), Clock()
    machine.interface("eth0")
    host = HostUsage(machine=machine, clock=clock)
    host.sample()
    clock.now_s += 10
    machine.traffic("eth0", 1_250_000, 0)
    good = host.sample()
    machine.traffic("eth0", 2_500_000, 0)
    assert host.sample() is good
    clock.now_s -= 5
    assert host.sample() is good
    clock.now_s += 10
    machine.traffic("eth0", 2_625_000, 0)
    assert host.sample().bandwidth_in.usage == 100.0


def test_a_counter_that_went_back_is_no_rate() -> None:
    """An interface was made anew, or a guest was moved to another machine."""
    machine, clock = FakeMachine({"/proc/stat": STAT}), Clock()
    machine.interface("eth0")
    machine.traffic("eth0", 1 << 40, 1 << 40)
    host = HostUsage(machine=machine, clock=clock)
    host.sample()
    clock.now_s += 10
    machine.traffic("eth0", 5, 5)
    machine.files["/proc/stat"] = "cpu 1 1 1 1 1 1 1 1 1 1\n"
    found = host.sample()
    assert found.cpu.usage == found.bandwidth_in.usage == found.bandwidth_out.usage == 0


def test_a_system_without_proc_and_sys() -> None:
    """As macOS: the process's own use, its memory, and no bandwidth."""
    machine, clock = FakeMachine({}), Clock()
    host = HostUsage(machine=machine, clock=clock)
    host.sample()
    clock.now_s += 10
    machine.busy_s += 5
    found = host.sample()
    assert found.cpu == ResourceUsage(50.0, 100.0)
    assert found.memory == ResourceUsage(100.0, 8192.0)
    assert found.bandwidth_in.percent() == 0


def test_this_machine() -> None:
    host = HostUsage()
    host.sample()
    found = host.sample()
    assert found.memory.usage > 5
    assert found.cpu.limit >= 100
    for each in (found.cpu, found.memory, found.bandwidth_in, found.bandwidth_out):
        assert math.isfinite(each.usage)
    assert 0 <= found.cpu.percent() <= 100


async def test_the_pause_is_between_two_samples(autojump_clock: MockClock) -> None:
    """A sample that takes long doesn't make the next interval short."""
    times: list[float] = []

    class Slow(HostUsage):
        def sample(self) -> SystemResourceUsage:
            times.append(autojump_clock.current_time())
            raise OSError("no")

    with trio.move_on_after(181):
        await Slow(machine=FakeMachine({})).run(60)
    assert len(times) == 4

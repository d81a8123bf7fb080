"""Cookies and free space by the shell (BK-11)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import Loss
from geminga_bookie.autorecovery._tests.world import World
from geminga_bookie.autorecovery.tools import Cluster, ToolFailed
from geminga_bookie.cli import bookieshell
from geminga_bookie.errors import BookieUnavailable
from geminga_bookie.port import BookieInfo
from geminga_bookie.shell import cookies, free_space
from geminga_bookie.shell.free_space import readable
from geminga_bookie.storage.disk import read_file
from geminga_protocol.bookkeeper import paths

COOKIE = """5
bookieHost: "h1:3181"
journalDir: "/a/j"
ledgerDirs: "2\\t/a/l1\\t/a/l2"
instanceId: "cluster-1"
"""


class Terminal:
    """A cluster, and what was printed."""

    def __init__(self, bookies: int = 0) -> None:
        self.world = World(bookies)
        self.lines: list[str] = []
        world = self.world
        self.at = Cluster(
            world.store, world.directory, world.tasks, world.options, self.lines.append
        )

    async def value(self, bookie_id: str) -> str | None:
        node = await self.at.store.get(paths.cookie(bookie_id))
        return None if node is None else node.value.decode()


async def _generate(
    terminal: Terminal, output: Path, disk: SimDisk | None = None, **changes: str
) -> None:
    values: dict[str, str | None] = {"index_dirs": None, "instance_id": None, **changes}
    await cookies.generate(
        terminal.at,
        "h1:3181",
        "/a/j",
        "/a/l1,/a/l2",
        values["index_dirs"],
        values["instance_id"],
        output,
        disk,
    )


async def test_a_generated_cookie_outlives_a_loss_of_power() -> None:
    disk, output = SimDisk(), Path("/cookie")
    await _generate(Terminal(), output, disk, instance_id="cluster-1")
    disk.start_after_power_loss(Loss(0.0, 0.0))
    assert read_file(disk, output) == COOKIE.encode()


async def test_a_cookie_from_its_making_to_its_end(tmp_path: Path) -> None:
    terminal = Terminal()
    await terminal.at.store.put(paths.INSTANCE_ID, b"cluster-1")
    file = tmp_path / "cookie"
    await _generate(terminal, file)
    assert terminal.lines == [f"Successfully saved the generated cookie to {file}"]
    assert file.read_text() == COOKIE
    assert await cookies.create(terminal.at, "h1:3181", file) == 0
    assert await terminal.value("h1:3181") == COOKIE
    with pytest.raises(ToolFailed, match="Cookie already exist for bookie 'h1:3181'"):
        await cookies.create(terminal.at, "h1:3181", file)
    await _generate(terminal, file, index_dirs="/a/i1,/a/i2", instance_id="other")
    assert await cookies.update(terminal.at, "h1:3181", file) == 0
    terminal.lines.clear()
    assert await cookies.get(terminal.at, "h1:3181") == 0
    changed = COOKIE.replace("cluster-1", "other") + 'indexDirs: "2\\t/a/i1\\t/a/i2"\n'
    assert terminal.lines == ["Cookie for bookie 'h1:3181' is:", "---", changed, "---"]
    assert await cookies.delete(terminal.at, "h1:3181") == 0
    assert await terminal.value("h1:3181") is None
    for act in (cookies.get, cookies.delete):
        with pytest.raises(ToolFailed, match="Cookie not found for bookie 'h1:3181'"):
            await act(terminal.at, "h1:3181")
    with pytest.raises(ToolFailed, match="to update"):
        await cookies.update(terminal.at, "h1:3181", file)
    assert os.listdir(tmp_path) == ["cookie"]


async def test_the_instance_of_directories_is_kept_and_shown() -> None:
    terminal = Terminal()
    text = f"{COOKIE}# geminga instance 77\n"
    await terminal.at.store.put(paths.cookie("h1:3181"), text.encode())
    await cookies.get(terminal.at, "h1:3181")
    assert terminal.lines[2] == text


async def test_another_file_is_told_to_be_no_cookie(tmp_path: Path) -> None:
    file = tmp_path / "bookkeeper.conf"
    file.write_text("bookiePort=3181\n")
    with pytest.raises(ToolFailed, match="its first line is no version, so it is no cookie"):
        await cookies.create(Terminal().at, "h1:3181", file)


@pytest.mark.parametrize("content", [b"", b"no cookie", b"3\n/a\n", b"5\nbookieHost", b"\xff" * 99])
async def test_only_cookies_are_uploaded(tmp_path: Path, content: bytes) -> None:
    terminal = Terminal()
    file = tmp_path / "cookie"
    file.write_bytes(content)
    for act in (cookies.create, cookies.update):
        with pytest.raises(ToolFailed, match="can't be read"):
            await act(terminal.at, "h1:3181", file)
    assert await terminal.value("h1:3181") is None


async def test_files_that_are_not_there(tmp_path: Path) -> None:
    terminal = Terminal()
    missing = tmp_path / "none" / "cookie"
    with pytest.raises(ToolFailed, match="doesn't exist"):
        await cookies.create(terminal.at, "h1:3181", missing)
    with pytest.raises(ToolFailed, match="can't be written"):
        await _generate(terminal, missing)


@pytest.mark.parametrize("bookie_id", ["", "a b", "a/b", "..", "readonly"])
async def test_ids_that_no_bookie_has(bookie_id: str) -> None:
    for act in (cookies.get, cookies.delete):
        with pytest.raises(ToolFailed, match="Invalid bookie id"):
            await act(Terminal().at, bookie_id)


@pytest.mark.parametrize(
    "arguments",
    [["cookie_get"], ["cookie_create", "h:1"], ["cookie_generate", "h:1"], ["bookieinfo"]],
)
def test_wrong_input(arguments: list[str]) -> None:
    result = CliRunner().invoke(bookieshell, arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, ""),
        (999, ""),
        (1000, "(1KB)"),
        (1_234_567, "(1.234MB)"),
        (1_999_999_999, "(1.999GB)"),
        (70_632_333_312, "(70.632GB)"),
        (10**16, "(10000TB)"),
    ],
)
def test_readable(size: int, said: str) -> None:
    assert readable(size) == said


async def test_bookieinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(3)
    world = terminal.world
    assert await free_space.bookie_info(terminal.at) == 1
    assert terminal.lines == ["Failed to retrieve bookie information from any of the bookies"]
    await world.register(*world.peers[:2])
    await world.register(world.peers[2], readonly=True)

    async def info(total: int) -> BookieInfo:
        return BookieInfo(total, total // 2)

    async def away() -> BookieInfo:
        raise BookieUnavailable("away")

    async def described(_at: Cluster, bookie_id: str) -> str:
        return f"BookieID:{bookie_id}, IP:1, Port:2, Hostname:3"

    monkeypatch.setattr(free_space, "_described", described)
    monkeypatch.setattr(world.peers[0], "info", lambda: info(2000))
    monkeypatch.setattr(world.peers[1], "info", away)
    monkeypatch.setattr(world.peers[2], "info", lambda: info(4000))
    terminal.lines.clear()
    assert await free_space.bookie_info(terminal.at) == 0
    assert terminal.lines == [
        "Free disk space info:",
        "BookieID:b0:3181, IP:1, Port:2, Hostname:3: \tFree: 1000(1KB)\tTotal: 2000(2KB)",
        "BookieID:b2:3181, IP:1, Port:2, Hostname:3: \tFree: 2000(2KB)\tTotal: 4000(4KB)",
        "BookieID:b1:3181: \taway",
        "Total free disk space in the cluster:\t3000(3KB)",
        "Total disk capacity in the cluster:\t6000(6KB)",
    ]


def test_a_loss_is_accepted_only_by_whoever_says_so() -> None:
    command = ["acceptloss", "-ledgerid", "1", "--metadata-store", "zk:127.0.0.1:1/none"]
    done = CliRunner().invoke(bookieshell, command, input="n\n")
    assert done.exit_code == 1
    assert "Give up what is lost of ledger 1 for ever?" in done.output

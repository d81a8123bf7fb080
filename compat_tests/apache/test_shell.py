"""Our `bookieshell` beside Apache's shell: the same lines for the same things (BK-11)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from compat_tests.apache.bookie import ApacheBookie, launch_bookie, start_metadata
from compat_tests.apache.jars import run_java
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.shells import SHELL_LOGGING, disks_by
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import wait_until
from geminga_bookie._tests.support import Outcomes
from geminga_bookie.cli import bookieshell
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote
from geminga_protocol.bookkeeper.digest import CRC32C, Digest, master_key

pytestmark = pytest.mark.java

PATIENCE = RemoteOptions(add_timeout_s=60, read_timeout_s=60, connect_timeout_s=60)
FLUSHES = {"flushInterval": "200"}
LEDGER = 5
ENTRIES = 4
MARK_BYTES = 16
"""The number and the position of a journal."""


@dataclass
class Pair:
    """One of Apache's bookies and one of ours, in one cluster, with the same entries."""

    apache: ApacheBookie
    ours: OurBookie

    def shell(self, *commands: str) -> list[str]:
        """What Apache's shell prints to each command, on its bookie's configuration."""
        config = self.apache.folder / "bookie.conf"
        logging = self.apache.folder / "log4j2.xml"
        logging.write_text(SHELL_LOGGING)
        flags = [f"-Dlog4j2.configurationFile={logging}"]
        said = run_java("Shell", [str(config), *commands], flags=flags, timeout_s=120)
        parts = re.split(r"^== ", said, flags=re.MULTILINE)[1:]
        return [part.partition("\n")[2] for part in parts]

    def our_shell(self, *commands: str) -> list[str]:
        """What ours prints, on our bookie's configuration."""
        printed = []
        for command in commands:
            arguments = ["-conf", str(self.ours.config), *command.split(" ")]
            printed.append(CliRunner().invoke(bookieshell, arguments).stdout)
        return printed


async def _fill(port: int) -> None:
    digest, key = Digest(CRC32C), master_key(b"secret")
    async with open_remote("bookie", "127.0.0.1", port, PATIENCE) as bookie:
        for entry_id in range(ENTRIES):
            outcomes = Outcomes()
            packet = digest.packet(LEDGER, entry_id, entry_id - 1, 0, [b"payload %d" % entry_id])
            bookie.add(LEDGER, key, entry_id, [packet], outcomes)
            await outcomes.wait_for(1)
        await bookie.fence(LEDGER, key)


def _logs(folder: Path) -> list[Path]:
    return [log for log in sorted(folder.glob("*.log")) if log.stat().st_size > 1024]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("shell")
    with skipped_without(APACHE):
        zookeeper = start_metadata(folder / "zookeeper")
    started: list[ApacheBookie | OurBookie] = []
    try:
        apache = launch_bookie(folder / "apache", zookeeper, FLUSHES)
        started.append(apache)
        ours = OurBookie(folder / "ours", zookeeper, FLUSHES)
        started.append(ours)
        ours.start()
        apache.wait()
        ours.wait()
        for each in (apache, ours):
            trio.run(_fill, each.port)
        yield Pair(apache, ours)
    finally:
        for each in started:
            each.kill()
        zookeeper.kill()


def test_the_cluster(pair: Pair, tmp_path: Path) -> None:
    """Cookies made, changed and deleted by either shell, and the disks."""
    ids = (pair.apache.bookie_id, pair.ours.bookie_id)
    outputs = tmp_path / "theirs", tmp_path / "mine"
    generate = "cookie_generate -j /a/j -l /a/l1,/a/l2 -ix /a/i1,/a/i2 -o {} new:3181"
    commands = (
        f"cookie_get {ids[0]}",
        "cookie_create -cf {} new:3181",
        "cookie_get new:3181",
        "cookie_update -cf {} new:3181",
        "cookie_delete new:3181",
    )
    pair.shell(generate.format(outputs[0]))
    pair.our_shell(generate.format(outputs[1]))
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    theirs = pair.shell(*(each.format(outputs[1]) for each in commands))
    mine = pair.our_shell(*(each.format(outputs[0]) for each in commands))
    assert theirs == mine
    assert "Cookie for bookie 'new:3181' is:\n---\n5\n" in mine[2]
    (our_info,) = pair.our_shell("bookieinfo")
    assert _shapes(disks_by(pair.shell)) == _shapes(our_info)
    instance = re.compile("# geminga instance .*\n")
    (their_view,), (our_view,) = (
        each(f"cookie_get {ids[1]}") for each in (pair.shell, pair.our_shell)
    )
    assert their_view == instance.sub("", our_view)


def _shapes(info: str) -> list[str]:
    """The lines in any order, without sizes, which change while others write."""
    return sorted(re.sub(r"\d+\([\d.]+[A-Z]B\)", "SIZE", line) for line in info.splitlines())


def _text(lines: str) -> list[str]:
    """Without positions, sizes of facts, and names of files."""
    text = re.sub(r"ByteOffset=\d+", "ByteOffset=N", lines)
    text = re.sub(r"(Eid=-\d+, ByteOffset=N, EntrySize=)\d+", r"\1N", text)
    text = re.sub(r"\w+ \(\w+\.\w+\)", "FILE", text)
    text = re.sub(r"Journal Version : \d+", "Journal Version : N", text)
    return [line for line in text.splitlines() if "payload" not in line]


def test_files(pair: Pair) -> None:
    """Each shell on the files of its own bookie, which have the same entries."""
    folder = pair.apache.folder / "entries" / "current"
    process = pair.apache.process
    wait_until(
        lambda: bool(_logs(folder) and list(pair.ours.entries.glob("*.log"))),
        process,
        pair.apache.folder / "log",
        timeout_s=60,
    )
    with _whole_mark(pair.apache):
        _same_of_files(pair, folder)


@contextmanager
def _whole_mark(bookie: ApacheBookie) -> Iterator[None]:
    """Apache's bookie empties its mark and writes it anew at each checkpoint, some times a second;
    a shell that meets the empty one says so. Meanwhile the bookie stands still.
    """
    mark = bookie.folder / "entries" / "current" / "lastMark"

    def is_whole() -> bool:
        bookie.pause()
        if mark.exists() and mark.stat().st_size == MARK_BYTES:
            return True
        bookie.resume()
        return False

    wait_until(is_whole, bookie.process, bookie.folder / "log", timeout_s=60)
    try:
        yield
    finally:
        bookie.resume()


def _same_of_files(pair: Pair, folder: Path) -> None:
    (log,) = _logs(folder)
    (our_log,) = sorted(pair.ours.entries.glob("*.log"))
    (journal,) = (pair.apache.folder / "journal" / "current").glob("*.txn")
    our_journal = min(pair.ours.journal.glob("*.journal"))
    commands = [
        ("readlog {}", log.name, our_log.name),
        ("readlog -m {}", log.name, our_log.name),
        (f"readlog -l {LEDGER} -e 2 {{}}", log.name, our_log.name),
        ("readlog -l 99 {}", log.name, our_log.name),
        ("readjournal {}", journal.name, our_journal.name),
        ("listfilesondisc -txn", "", ""),
    ]
    theirs = pair.shell(*(each.format(name) for each, name, _ in commands))
    mine = pair.our_shell(*(each.format(name) for each, _, name in commands))
    for (command, _, _), their_lines, our_lines in zip(commands, theirs, mine, strict=True):
        if command.startswith("list"):
            assert str(journal) in their_lines
            assert str(our_journal) in our_lines
            assert their_lines.splitlines()[0] == our_lines.splitlines()[0]
            continue
        assert _text(their_lines) == _text(our_lines), command
    assert "LedgerId 99  is not available in the entry log" in mine[3]
    assert f"Lid={LEDGER}, Eid=-8192" in mine[4]

"""A process that is killed keeps no session with ZooKeeper: its witness ends it (decision 48)."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
from kazoo.client import KazooClient

from compat_tests.apache.zookeeper import ZooKeeperServer
from geminga_runtime.metadata.witness import __main__ as witness_program
from geminga_runtime.metadata.witness.handle import Witness
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

LIVES_S = 60.0
"""Time-out of sessions: no test waits for it."""
SHORT_S = 4.0
WAIT_S = 20.0
ANSWER_S = 10.0
"""Much shorter than kazoo gives each server of four."""
PROGRAM_FILE = "geminga_runtime/metadata/witness/__main__.py"
_numbers = itertools.count()

PROGRAM = """
import os, sys, trio
from geminga_runtime.metadata.api import MetadataError, SessionPhase
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

if "OF_WITNESS" in os.environ:
    os.environ["PYTHONPATH"] = os.environ["OF_WITNESS"]

async def main():
    url, timeout_s, has_witness = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "True"
    store = await ZooKeeperMetadataStore.open(
        url, session_timeout_s=timeout_s, has_witness=has_witness
    )
    while True:
        epoch = store.session.epoch
        try:
            await store.put("/mine", b"", epoch=epoch)
        except MetadataError:  # another session has begun meanwhile
            if store.session.phase is SessionPhase.CLOSED:
                return
            await trio.sleep(0.05)
            continue
        link = store._calls._link
        print(link.session_id, link.password.hex(), flush=True)
        async with trio.open_nursery() as nursery:
            async def read():
                await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
                await store.aclose()
                sys.exit()
            nursery.start_soon(read)
            await store.wait_change(epoch)
            await store._tracker.wait_session()
            nursery.cancel_scope.cancel()

trio.run(main)
"""


class Watched:
    """A process with a session, and a node of it."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.session_id = 0
        self.password = b""

    @property
    def witnesses(self) -> list[int]:
        """The numbers of its witnesses that run."""
        return [pid for pid, words in _commands() if str(self.process.pid) == words[-1]]

    async def next_session(self) -> None:
        """Wait until it has one, and its node."""
        assert self.process.stdout is not None
        with trio.fail_after(WAIT_S):
            line = await trio.to_thread.run_sync(self.process.stdout.readline)
        session_id, password = line.split()
        self.session_id, self.password = int(session_id), bytes.fromhex(password)

    def kill(self) -> None:
        """As the system does to one that takes too much memory."""
        self.process.kill()
        self.process.wait()


def witness_pids() -> list[int]:
    """Of this process."""
    return [pid for pid, words in _commands() if str(os.getpid()) == words[-1]]


def _commands() -> list[tuple[int, list[str]]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_text().split("\0")[:-1]
            if any(word.endswith(PROGRAM_FILE) for word in words):
                found.append((int(folder.name), words))
    return found


@asynccontextmanager
async def watched(
    server: ZooKeeperServer, *, timeout_s: float = LIVES_S, has_witness: bool = True
) -> AsyncIterator[tuple[Watched, ZooKeeperMetadataStore]]:
    """Such a process, and another session that looks on."""
    url = f"{server.url}/witness/{next(_numbers)}"
    command = [sys.executable, "-c", PROGRAM, url, str(timeout_s), str(has_witness)]
    with _running(command) as process:
        found = Watched(process, url)
        store = await ZooKeeperMetadataStore.open(url, session_timeout_s=LIVES_S)
        try:
            await found.next_session()
            yield found, store
        finally:
            found.kill()
            await store.aclose()
            with trio.fail_after(WAIT_S):
                await until(lambda: not found.witnesses)


def _running(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await trio.sleep(0.02)


async def until_gone(store: ZooKeeperMetadataStore, path: str = "/mine") -> None:
    """Wait for it, much shorter than the session's time-out."""
    with trio.fail_after(WAIT_S):
        while await store.exists(path):  # noqa: ASYNC110
            await trio.sleep(0.02)


async def stays(store: ZooKeeperMetadataStore, path: str = "/mine") -> bool:
    """Whether the node is there for longer than a witness takes."""
    await trio.sleep(2)
    return await store.exists(path)


async def test_nodes_of_a_killed_process_go_at_once(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        process.kill()
        await until_gone(store)


async def test_without_a_witness_they_stay(server: ZooKeeperServer) -> None:
    async with watched(server, has_witness=False) as (process, store):
        assert not process.witnesses
        process.kill()
        assert await stays(store)


async def test_servers_that_do_not_answer_are_not_waited_for(server: ZooKeeperServer) -> None:
    """Of an ensemble, whichever the witnesses ask first; six of them, as they draw lots."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hosts = ",".join([f"127.0.0.1:{mute.getsockname()[1]}"] * 3 + [server.address])
        witnesses = []
        async with AsyncExitStack() as stack:
            for _ in range(6):
                process, store = await stack.enter_async_context(watched(server, has_witness=False))
                process.kill()
                witnesses.append((store, witness_of(hosts, process)))
            with trio.fail_after(ANSWER_S):
                for store, witness in witnesses:
                    await until_gone(store)
                    await trio.to_thread.run_sync(witness.wait)


def witness_of(hosts: str, process: Watched) -> subprocess.Popen[bytes]:
    """Started by hand, when the process is dead already."""
    command = [sys.executable, str(witness_program.__file__), hosts, "0"]
    found = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert found.stdin is not None
    found.stdin.write(
        b"%d %s %d\n" % (process.session_id, process.password.hex().encode(), LIVES_S)
    )
    found.stdin.close()
    return found


async def test_it_is_the_program_beside_whoever_starts_it(
    server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the environment says that its modules are."""
    for name in ("geminga_runtime", "kazoo", "socket", "struct"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit\n")
    monkeypatch.setenv("OF_WITNESS", str(tmp_path))
    async with watched(server) as (process, store):
        process.kill()
        await until_gone(store)


async def test_one_that_stands_still_is_not_dead(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        os.kill(process.process.pid, signal.SIGSTOP)
        assert await stays(store)
        os.kill(process.process.pid, signal.SIGCONT)
        assert await stays(store)
        process.kill()
        await until_gone(store)


async def test_it_follows_to_the_next_session(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        first = process.session_id
        await trio.to_thread.run_sync(_end, server, first, process.password)
        await process.next_session()
        assert process.session_id != first
        assert await store.exists("/mine")
        process.kill()
        await until_gone(store)


def _end(server: ZooKeeperServer, session_id: int, password: bytes) -> None:
    client = KazooClient(server.address, client_id=(session_id, password))
    client.start()
    client.stop()
    client.close()


async def test_it_takes_no_signals_of_the_process(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        (witness,) = process.witnesses
        assert os.getpgid(witness) != os.getpgid(process.process.pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(witness, number)
        process.kill()
        await until_gone(store)


async def test_it_waits_for_a_server_that_does_not_answer(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        server.pause()
        try:
            process.kill()
            await trio.sleep(1)
        finally:
            server.resume()
        await until_gone(store)


async def test_a_process_outlives_its_witness(server: ZooKeeperServer) -> None:
    async with watched(server, timeout_s=SHORT_S) as (process, store):
        (witness,) = process.witnesses
        os.kill(witness, signal.SIGKILL)
        assert await stays(store)
        first = process.session_id
        await trio.to_thread.run_sync(_end, server, first, process.password)
        await process.next_session()
        assert await store.exists("/mine")


async def test_another_one_follows_one_that_has_ended(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        (first,) = process.witnesses
        os.kill(first, signal.SIGKILL)
        with trio.fail_after(WAIT_S):
            await until(lambda: len(process.witnesses) == 1 and process.witnesses != [first])
        assert str(first) not in os.listdir("/proc"), "nothing is left of it"
        assert await stays(store)
        process.kill()
        await until_gone(store)


async def test_what_a_close_could_not_end_is_left_to_it(server: ZooKeeperServer) -> None:
    """As no server was there."""
    async with watched(server) as (process, store):
        server.kill()
        assert process.process.stdin is not None
        process.process.stdin.write("\n")
        process.process.stdin.flush()
        try:
            with trio.fail_after(WAIT_S):
                await trio.to_thread.run_sync(process.process.wait, abandon_on_cancel=True)
            assert len(process.witnesses) == 1
        finally:
            await trio.to_thread.run_sync(server.start)
        await until_gone(store)


async def test_it_looks_whether_a_session_has_ended(server: ZooKeeperServer) -> None:
    """Who stops in order may have lost the connection before the answer to its close."""
    async with watched(server, has_witness=False) as (process, store):
        witness = Witness(server.address)
        await witness.start()
        witness.tell(process.session_id, process.password, LIVES_S)
        await witness.aclose()
        await until_gone(store)


async def test_the_log_names_the_next_one_and_what_a_close_leaves_to_it(
    server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(server, has_witness=False) as (process, store):
        witness = Witness(server.address)
        await witness.start()
        (first,) = witness_pids()
        os.kill(first, signal.SIGKILL)
        with trio.fail_after(WAIT_S):
            await until(lambda: witness_pids() not in ([], [first]))
            (second,) = witness_pids()
            await until(lambda: f"process {second} is this one's witness now" in caplog.text)
        witness.tell(process.session_id, process.password, LIVES_S)
        server.pause()
        try:
            await witness.aclose()
        finally:
            server.resume()
        assert f"process {second}, this one's witness, goes on asking" in caplog.text
        await until_gone(store)


async def test_it_ends_with_a_session_that_is_closed(server: ZooKeeperServer) -> None:
    async with watched(server) as (process, store):
        assert len(process.witnesses) == 1
        assert process.process.stdin is not None
        process.process.stdin.write("\n")
        process.process.stdin.flush()
        with trio.fail_after(WAIT_S):
            await trio.to_thread.run_sync(process.process.wait, abandon_on_cancel=True)
        assert not process.witnesses, "the close waits for it"
        assert not await store.exists("/mine")

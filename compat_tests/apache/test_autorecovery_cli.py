"""`geminga autorecovery` and the shell on a real ZooKeeper."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import aclosing

import pytest
import trio

from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.processes import geminga_command
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore

pytestmark = pytest.mark.java

READY = r"ready in [0-9.]+ s: autorecovery://\S+:3181 metadata=zk:\S+\n"


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*geminga_command(), "bookieshell", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_daemon_and_shell(server: ZooKeeperServer) -> None:
    """One ready line; a clean end deletes the vote."""
    prepare(server, "cluster")
    where = "--metadata-store", f"{server.url}/cluster"
    command = [*geminga_command(), "autorecovery", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            line = daemon.stdout.readline()
            assert re.fullmatch(
                r"ready in [0-9.]+ s: autorecovery://\S+:3181 metadata=zk:\S+\n", line
            )
            while (said := shell("whoisauditor", *where)).returncode:
                assert said.stdout == "No auditor elected\n", said
            assert said.stdout.startswith("Auditor: ")
            assert (
                shell("listbookies", *where).stdout == "ReadWrite Bookies :\nReadonly Bookies :\n"
            )
            assert shell("triggeraudit", *where).returncode == 0
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)
    assert daemon.returncode == 0
    assert shell("whoisauditor", *where).stdout == "No auditor elected\n"


@pytest.mark.parametrize("command", ["listbookies", "whoisauditor", "bookieinfo"])
def test_output_that_nobody_reads(server: ZooKeeperServer, command: str) -> None:
    """As with `| head`: nothing is said, exit code 1."""
    prepare(server, "cluster")
    line = [*geminga_command(), "bookieshell", *command.split(), "--metadata-store"]
    ours, its = os.pipe()
    os.close(ours)  # before it has started, so that it never finds a reader
    with subprocess.Popen(
        [*line, f"{server.url}/cluster"], stdout=its, stderr=subprocess.PIPE, text=True
    ) as running:
        os.close(its)
        assert running.stderr is not None
        said = running.stderr.read()
        assert (running.wait(60), said) == (1, "")


def prepare(server: ZooKeeperServer, chroot: str) -> None:
    store = f"{server.url}/{chroot}"
    options = ["-c", "c", "-md", store, "-cms", store, "-uw", "http://h:1"]
    subprocess.run([*geminga_command(), "initialize-cluster-metadata", *options], check=True)


@pytest.mark.parametrize(
    "command", ["autorecovery", "bookieshell autorecovery -d", "bookieshell listbookies"]
)
def test_a_path_that_no_cluster_has(server: ZooKeeperServer, command: str) -> None:
    """Nothing is made there."""
    where = f"{server.url}/mistyped"
    done = subprocess.run(
        [*geminga_command(), *command.split(), "--metadata-store", where],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: the metadata store has no /ledgers/INSTANCEID: prepare it by `geminga "
        "initialize-cluster-metadata`, or check the path in metadataServiceUri"
    )

    async def made() -> bool:
        async with aclosing(await ZooKeeperMetadataStore.open(server.url)) as store:
            return await store.exists("/mistyped")

    assert not trio.run(made)


@pytest.mark.alone
def test_a_stop_while_zookeeper_does_not_answer(server: ZooKeeperServer) -> None:
    """Two seconds each for the vote and for the session, which end without it."""
    prepare(server, "paused")
    command = [*geminga_command(), "autorecovery", "--metadata-store", f"{server.url}/paused"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline().startswith("ready in ")
            server.pause()
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(9) == 0
        finally:
            server.resume()
            daemon.kill()


def test_without_a_store() -> None:
    done = subprocess.run(
        [*geminga_command(), "autorecovery"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "metadataServiceUri: must be set" in done.stderr

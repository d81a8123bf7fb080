"""`geminga autorecovery` and the shell on a real ZooKeeper."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest

from compat_tests.apache.zookeeper import ZooKeeperServer
from compat_tests.processes import geminga_command

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


def test_without_a_store() -> None:
    done = subprocess.run(
        [*geminga_command(), "autorecovery"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "metadataServiceUri: must be set" in done.stderr

"""The official Go client on our server and on Apache's: the same program, the same lines."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from compat_tests.apache.jars import PeerMissing, peers_dir
from compat_tests.missing import GO_CLIENT, skipped_without
from compat_tests.processes import ServerProcess

SOURCES = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 900
EXPECTED = {
    "terminated": "ok 200 refused: true TopicTerminated",
    "exclusive": "ProducerFenced ProducerBusy, waiting: ok",
    "missing": "TopicNotFound TopicNotFound",
    "schema of bytes": 'ok "x" then a schema of text: IncompatibleSchema',
    "last of empty": "-1:-1 next: false",
}


def program() -> Path:
    """The scenarios' program, built once for each text of it. Raises PeerMissing without Go."""
    go = shutil.which("go")
    if go is None:
        raise PeerMissing("go is not installed")
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sorted(SOURCES.iterdir())))
    built = peers_dir() / f"go-client-{digest.hexdigest()[:16]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        making = built.with_suffix(f".{os.getpid()}")
        # Unoptimised, and without C: it takes a third less time, and runs for seconds.
        command = [go, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(making), "."]
        done = subprocess.run(
            command,
            cwd=SOURCES,
            env=os.environ | {"CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        making.replace(built)
    return built


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S + 300)
def test_scenarios_of_the_go_client(server: ServerProcess) -> None:
    with skipped_without(GO_CLIENT):
        command = [str(program()), server.service_url, server.web_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert dict(line.split("\t") for line in done.stdout.splitlines()) == EXPECTED

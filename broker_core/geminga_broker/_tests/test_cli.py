"""`geminga standalone` as a process: ready line, errors in one sentence, clean end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geminga_runtime._tests.certificates import Authority

pytestmark = pytest.mark.slow

READY = re.compile(
    r"ready in [0-9.]+ s: pulsar://127\.0\.0\.1:(\d+) (http://127\.0\.0\.1:\d+) data="
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "geminga.cli", "standalone", "--host", "127.0.0.1", *arguments]


def fail(*arguments: str, code: int = 2) -> str:
    """Standard error of a start that must fail with this exit code and one sentence."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    process = subprocess.Popen(
        command("--broker-port", "0", "--web-port", "0", *arguments),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = READY.match(process.stdout.readline())
        assert ready is not None
        yield process, ready
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with running("--data-dir", str(tmp_path / "data")) as (process, ready):
        socket.create_connection(("127.0.0.1", int(ready[1]))).close()
        with urllib.request.urlopen(f"{ready[2]}/admin/v2/brokers/health") as answer:
            assert answer.read() == b"ok"
        process.send_signal(number)
        assert process.wait(60) == 0
    assert (tmp_path / "data").is_dir()


def test_a_start_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    """What is for WebSockets, certificates and OpenAPI documents comes when somebody asks for it,
    and works then.
    """
    late = ["wsproto", "h11", "geminga.client", "geminga_broker.websocket.service"]
    late += ["cryptography.x509", "geminga_broker.admin.openapi.document", "pydantic", "jinja2"]
    errors = tmp_path / "errors"
    arguments = command("--broker-port", "0", "--web-port", "0", "--in-memory")
    watched = [sys.executable, "-X", "importtime", *arguments[1:]]
    with (
        errors.open("w") as file,
        subprocess.Popen(watched, stdout=subprocess.PIPE, stderr=file, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            ready = re.match(r"ready in [0-9.]+ s: \S+ (\S+)", process.stdout.readline())
            assert ready is not None
            imported = _imported(errors)
            assert "geminga_broker.web.server" in imported
            assert imported.isdisjoint(late)
            with urllib.request.urlopen(f"{ready[1]}/admin/v2/openapi.json") as answer:
                assert b'"openapi"' in answer.read()
            assert late[5] in _imported(errors)
        finally:
            process.kill()


def _imported(errors: Path) -> set[str]:
    lines = errors.read_text().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_in_memory_leaves_nothing(tmp_path: Path) -> None:
    with running("--in-memory", "--data-dir", str(tmp_path / "data")) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with running("--data-dir", data):
        line = fail("--data-dir", data, "--broker-port", "0", "--web-port", "0", code=1)
    assert data in line
    assert "use" in line


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    line = fail(
        "--data-dir", str(tmp_path / "data" / "sub"), "--broker-port", "0", "--web-port", "0"
    )
    assert "can't be made" in line


def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    if os.geteuid() == 0:
        # Root may write everywhere but where the kernel itself has no files to make.
        data = Path("/proc/1/geminga")
    else:
        data.mkdir(mode=0o500)
    line = fail("--data-dir", str(data), "--broker-port", "0", "--web-port", "0")
    assert str(data) in line
    assert "can't be" in line


@pytest.mark.parametrize("option", ["--broker-port", "--web-port"])
def test_a_port_that_is_taken(tmp_path: Path, option: str) -> None:
    other = "--web-port" if option == "--broker-port" else "--broker-port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = fail("--in-memory", option, port, other, "0", code=1)
    key = {"--broker-port": "brokerServicePort", "--web-port": "webServicePort"}[option]
    assert line == (
        f"Error: {option} ({key}): can't listen on 127.0.0.1:{port}: Address already in use; "
        "stop the program that has the port, or set another one"
    )


def test_a_port_of_a_file_that_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"webServicePort={port}\n")
        line = fail("--in-memory", "--config", str(file), "--broker-port", "0", code=1)
    assert line.startswith(f"Error: webServicePort: can't listen on 127.0.0.1:{port}: ")


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("journalSyncData=perhaps\nunknownKey=1\n")
    line = fail("--in-memory", "--config", str(file)).splitlines()[-1]
    assert line == f"Error: journalSyncData in {file}: 'perhaps' is not true or false"


def test_a_filter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("entryFilterNames=nope\n")
    line = fail("--in-memory", "--broker-port", "0", "--web-port", "0", "--config", str(file))
    assert line == "Error: entryFilterNames: entry filter 'nope' is not installed"


def test_tls_listeners(tmp_path: Path) -> None:
    leaf = Authority(tmp_path / "ca").server()
    config = tmp_path / "broker.conf"
    lines = ["brokerServicePortTls=0", "webServicePortTls=0"]
    lines += [f"tlsCertificateFilePath={leaf.certificate}", f"tlsKeyFilePath={leaf.key}"]
    config.write_text("\n".join(lines))
    arguments = ("--broker-port", "0", "--web-port", "0", "--in-memory", "--config", str(config))
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        kinds = re.findall(r" (\S+)://127\.0\.0\.1:\d+", line)
        assert kinds == ["pulsar", "pulsar+ssl", "http", "https"], line
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    config.write_text("\n".join(lines[:3]))
    data = tmp_path / "data"
    line = fail("--broker-port", "0", "--config", str(config), "--data-dir", str(data))
    assert line.startswith("Error: tlsKeyFilePath: it is not set; a TLS port needs")
    assert not data.exists()


def mode_of(path: Path) -> int:
    """None of its bits if the server has removed it meanwhile."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


def test_the_data_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    old = os.umask(0o022)
    try:
        with running("--data-dir", str(data)) as (process, _):
            found = [data, *data.rglob("*")]
            open_to_others = [str(path) for path in found if mode_of(path) & 0o077]
            assert len(found) > 10
            assert open_to_others == []
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        # Those of a version that made them readable.
        for path in (data, data / "bookie", data / "metadata.sqlite"):
            path.chmod(0o755)
        with running("--data-dir", str(data)) as (process, _):
            modes = [(data / name).stat().st_mode & 0o777 for name in ("", "bookie")]
            assert modes == [0o700, 0o700]
            assert (data / "metadata.sqlite").stat().st_mode & 0o077 == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        # A directory that holds something else stays as it is.
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o755)
        (shared / "other").touch()
        with running("--data-dir", str(shared)) as (process, _):
            assert shared.stat().st_mode & 0o777 == 0o755
            assert (shared / "bookie").stat().st_mode & 0o777 == 0o700
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        os.umask(old)

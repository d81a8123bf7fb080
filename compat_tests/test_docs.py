"""Every example in the documents that is marked is run as it stands, against a server of ours:
`<!-- test: NAME -->` by Python or the shell, `<!-- pytest: NAME -->` by pytest and
`<!-- app: NAME -->` by a web server.

Only the addresses are replaced, since the server of the tests takes free ports.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import enum
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import geminga
from compat_tests.apache.server import start_apache
from compat_tests.apache.zookeeper import start_zookeeper
from compat_tests.guides import Step, guides, run_guide, steps
from compat_tests.missing import APACHE, ZOOKEEPER, skipped_without
from compat_tests.processes import ROOT, ServerProcess, free_port, spawn, wait_until
from geminga_protocol import tokens

BLOCK = re.compile(
    r"<!-- (?P<how>test|pytest|app): (?P<name>[\w-]+) -->\n```(?P<kind>\w+)\n(?P<code>.*?)```",
    re.DOTALL,
)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks() -> list[tuple[str, str, str]]:
    """(document:name, how it is run, code) of every marked example."""
    return [
        (
            f"{path.name}:{match['name']}",
            match["kind"] if match["how"] == "test" else match["how"],
            match["code"],
        )
        for path in DOCUMENTS
        for match in BLOCK.finditer(path.read_text())
    ]


def addressed(text: str, server: ServerProcess) -> str:
    """The example with the addresses of the running server."""
    text = text.replace("pulsar://127.0.0.1:6650", server.service_url)
    return text.replace("http://127.0.0.1:8080", server.web_url)


def shell_lines(code: str, server: ServerProcess) -> list[str]:
    """Commands of a console example, without their prompts."""
    lines = [line[2:] for line in code.splitlines() if line.startswith("$ ")]
    lines = [
        re.sub(r"(^|\| )geminga client ", rf"\1geminga client --url {server.service_url} ", line)
        for line in lines
    ]
    lines = [
        re.sub(r"^geminga admin ", f"geminga admin --admin-url {server.web_url} ", line)
        for line in lines
    ]
    place = f"--admin-url {server.web_url} --url {server.service_url}"
    lines = [re.sub(r"^geminga doctor$", f"geminga doctor {place}", line) for line in lines]
    return [
        re.sub(r"^geminga perf (\w+) ", rf"geminga perf \1 -u {server.service_url} ", line)
        for line in lines
    ]


def run(command: list[str], folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    failed = done.returncode != 0 and not tells_of_a_full_disk(done)
    assert not failed, f"{command}:\n{done.stdout}\n{done.stderr}"


def tells_of_a_full_disk(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether `geminga doctor` has found nothing wrong but what is true of this machine."""
    found = [line for line in done.stdout.splitlines() if line.startswith("fail: ")]
    full = re.compile(r"fail: Bookie \S+ has .* free \([0-4]%\)\.")
    return done.returncode == 1 and bool(found) and all(full.fullmatch(line) for line in found)


def test_only_a_full_disk_is_the_machines_own_fault() -> None:
    full = "fail: Bookie 127.0.0.1:3181 has 12 GB of 271 GB free (4%).\n"
    for text, expected in (
        (full, True),
        (full + "fail: No broker is active.\n", False),
        ("", False),
    ):
        done = subprocess.CompletedProcess(["geminga"], 1, "ok: It answers.\n" + text, "")
        assert tells_of_a_full_disk(done) == expected


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`app.py` of the folder, served by hypercorn on asyncio; its URL. It must end by itself."""
    port = free_port()
    command = [sys.executable, "-m", "hypercorn", "app:app", "-b", f"127.0.0.1:{port}"]
    log_path = folder / "app.log"
    process = spawn(command, log_path=log_path, cwd=folder)

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, process, log_path, timeout_s=60)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log_path.read_text()
        assert "Traceback" not in log_path.read_text(), log_path.read_text()
    finally:
        process.kill()
        process.wait()


def order_and_be_served(url: str) -> None:
    """What was posted to the app comes out of its consumer."""
    request = urllib.request.Request(f"{url}/orders", data=b"two teas", method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 202
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        with urllib.request.urlopen(f"{url}/served", timeout=60) as answer:
            if json.loads(answer.read()) == ["two teas"]:
                return
        time.sleep(0.02)
    raise AssertionError("what was ordered is not served")


def test_there_are_examples() -> None:
    names = [name for name, _kind, _code in blocks()]
    assert "README.md:official-client" in names
    assert len(names) == len(set(names))


def test_documents_call_no_program_that_is_not_ours() -> None:
    """Apache's scripts aren't there; what they do is told as a call of the REST API."""
    assert [path.name for path in DOCUMENTS if "bin/pulsar" in path.read_text()] == []


def test_readme_tells_what_a_command_needs() -> None:
    """The same extra as the command names when it is missing."""
    code = (
        "import sys; sys.modules['jwt'] = None; from geminga.cli import main; "
        "main(['tokens', 'create-secret-key'], prog_name='geminga')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    told = re.search(r"geminga\[(\w+)\]", done.stderr)
    assert told is not None, done.stderr
    readme = (ROOT / "README.md").read_text()
    assert re.search(rf"`geminga\[{told[1]}\]` \([^)]*`geminga tokens`", readme)


@pytest.mark.parametrize(("name", "kind", "code"), blocks(), ids=[b[0] for b in blocks()])
@pytest.mark.slow
def test_example(
    name: str, kind: str, code: str, standalone: ServerProcess, tmp_path: Path
) -> None:
    if kind == "python":
        run([sys.executable, "-c", addressed(code, standalone)], tmp_path)
        return
    if kind == "pytest":
        (tmp_path / "test_example.py").write_text(code)
        run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
        return
    if kind == "app":
        (tmp_path / "app.py").write_text(addressed(code, standalone))
        with serving(tmp_path) as url:
            order_and_be_served(url)
        return
    assert kind == "console", f"{name}: no way to run {kind}"
    for line in shell_lines(code, standalone):
        run(["bash", "-c", addressed(line, standalone)], tmp_path)


BEFORE_APACHE = "before-apache"
CLUSTER = "cluster"
SPARK = "spark.md"  # runs with the Spark tests, where Java is asked for
GUIDES = [
    pytest.param(found, id=f"{path.name}:{name}")
    for path in DOCUMENTS
    for name, found in guides(path).items()
    if name not in (BEFORE_APACHE, CLUSTER) and path.name != SPARK
]


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.slow
def test_guide(guide: list[Step], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run_guide(guide, folder)


@pytest.mark.java
def test_guide_of_a_cluster(tmp_path: Path) -> None:
    """It begins with a ZooKeeper that runs already."""
    with skipped_without(ZOOKEEPER):
        zookeeper = start_zookeeper(tmp_path / "zookeeper")
    folder = tmp_path / "folder"
    folder.mkdir()
    try:
        guide = guides(ROOT / "docs" / "CLUSTER.md")[CLUSTER]
        run_guide(guide, folder, ports={"2181": str(zookeeper.port)})
    finally:
        zookeeper.kill()


@pytest.mark.java
def test_guide_before_apache(tmp_path: Path) -> None:
    """The guide that needs a cluster of Apache's, which runs with the settings that it gives."""
    document, etc, folder = ROOT / "docs" / "PROXY.md", tmp_path / "etc", tmp_path / "folder"
    for each in (etc, folder):
        each.mkdir()
    key = secrets.token_bytes(32)
    token = tokens.create(key, "admin")
    (etc / "secret.key").write_bytes(key)
    (etc / "admin.token").write_text(token)
    marked = rf"<!-- apache: {BEFORE_APACHE} -->\n```properties\n(.*?)```"
    found = re.search(marked, document.read_text(), re.DOTALL)
    assert found
    lines = found[1].replace("/etc/pulsar", str(etc)).split()
    settings = dict(line.split("=", 1) for line in lines)
    with skipped_without(APACHE):
        cluster = start_apache(tmp_path / "apache", settings=settings, wait_ready=False)

    def answers() -> bool:
        request = urllib.request.Request(
            f"{cluster.web_url}/admin/v2/namespaces/public",
            headers={"Authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return b"public/default" in answer.read()
        except OSError:
            return False

    guide = guides(document)[BEFORE_APACHE]
    for step in guide:
        step.command = step.command.replace("/etc/pulsar", str(etc))
    ports = {
        "6650": cluster.service_url.rpartition(":")[2],
        "8080": cluster.web_url.rpartition(":")[2],
    }
    try:
        wait_until(answers, cluster.process, cluster.log_path, timeout_s=200, poll_s=0.2)
        run_guide(guide, folder, ports=ports)
    finally:
        cluster.kill()


SERVER = "sh -c 'echo ready in 0.1 s: ; exec sleep 60' &"


def test_a_guide_is_one_shell_script(tmp_path: Path) -> None:
    text = f"""$ {SERVER}
$ NAME=two
$ cat > file <<'END'
$HOME
END
$ echo "$NAME 6650"; cat \\
    file
two 6650
$...ME
$ false   # refused
"""
    found = steps(text)
    assert [step.is_server for step in found] == [True, False, False, False, False]
    run_guide(found, tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("$ true   # refused", "ended with 0"),
        ("$ false", "ended with 1"),
        ("$ exit 1 &", "not ready"),
        ("$ echo one\ntwo", "has no 'two'"),
        ("$ echo one; echo two\ntwo\none", "has no 'one'"),
        ("$ false\n$ true", "ended with 1"),
    ],
)
def test_a_guide_that_is_wrong_is_found(text: str, complaint: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(AssertionError, match=complaint):
        run_guide(steps(text), folder)


SDK = ROOT / "docs" / "SDK.md"
NAMED_TEST = re.compile(r"`([\w/]*test_\w+\.py)(?:::(test_\w+))?`")
ON_BOTH = {"server", "peer", "tls_server"}
"""Fixtures that make a test run on our server and on Apache's."""


def named_in(path: str) -> dict[str, set[str]]:
    """The tests of the one file that is meant, with the names of their arguments."""
    files = [*ROOT.glob(f"sdk/geminga/**/{path}"), *ROOT.glob(f"compat_tests/**/{path}")]
    own = [each for each in files if "_bridge" not in each.parts] or files
    exact = ROOT / "sdk" / "geminga" / path  # as others end like it
    own = [exact] if exact in own else own
    assert len(own) == 1, f"{path}: {own}"
    return {
        node.name: {each.arg for each in node.args.args}
        for node in ast.parse(own[0].read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_")
    }


@pytest.mark.slow
def test_named_tests_exist() -> None:
    """Each row of the SDK's specification, and each test that is said to prove one."""
    rows = re.findall(r"^\| (SDK-\d\d) \|.*\| (.*) \| (.*) \|$", SDK.read_text(), re.MULTILINE)
    specified = re.findall(
        r"^\| (SDK-\d\d) \|", (ROOT / "docs" / "FEATURES.md").read_text(), re.MULTILINE
    )
    assert [row for row, _, _ in rows] == specified
    for row, ours, both in rows:
        named = [(False, each) for each in NAMED_TEST.findall(ours)]
        named += [(True, each) for each in NAMED_TEST.findall(both)]
        assert len(named) == f"{ours}{both}".count("`") / 2, f"{row}: {ours} {both}"
        for runs_on_both, (path, name) in named:
            tests = named_in(path)
            assert not name or name in tests, f"{row}: {path} has no {name}"
            if runs_on_both:
                meant = [tests[name]] if name else [*tests.values()]
                assert all(each & ON_BOTH for each in meant), f"{row}: {path}::{name} has no peer"


def test_options_are_told_right() -> None:
    rows = re.findall(r"^\| `(\w+Options)` \| `(\w+)` \| (\S+) \|", SDK.read_text(), re.MULTILINE)
    assert len(rows) > 10
    for kind, name, default in rows:
        (found,) = (
            each for each in dataclasses.fields(getattr(geminga, kind)) if each.name == name
        )
        value = found.default
        told = value.name if isinstance(value, enum.Enum) else repr(value)
        assert told == default, f"{kind}.{name}"


def test_errors_are_told_right() -> None:
    text = SDK.read_text()
    section = text[text.index("## Errors") : text.index("## What is tried again")]
    named = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert len(named) > 5
    for name in re.findall(r"`([A-Z]\w+)`", " ".join(named)):
        assert hasattr(geminga, name) or hasattr(builtins, name), name

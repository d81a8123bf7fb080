"""Every example in the documents that is marked `<!-- test: NAME -->` is run as it stands, against
a server of ours.

Only the addresses are replaced, since the server of the tests takes free ports.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.processes import ROOT, ServerProcess

BLOCK = re.compile(
    r"<!-- test: (?P<name>[\w-]+) -->\n```(?P<kind>\w+)\n(?P<code>.*?)```", re.DOTALL
)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks() -> list[tuple[str, str, str]]:
    """(document:name, kind, code) of every marked example."""
    return [
        (f"{path.name}:{match['name']}", match["kind"], match["code"])
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
    lines = [re.sub(r"^geminga client ", f"geminga client --url {server.service_url} ", line)
             for line in lines]  # fmt: skip
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
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"


def test_there_are_examples() -> None:
    names = [name for name, _kind, _code in blocks()]
    assert "README.md:official-client" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "kind", "code"), blocks(), ids=[b[0] for b in blocks()])
def test_example(
    name: str, kind: str, code: str, standalone: ServerProcess, tmp_path: Path
) -> None:
    if kind == "python":
        run([sys.executable, "-c", addressed(code, standalone)], tmp_path)
        return
    assert kind == "console", f"{name}: no way to run {kind}"
    for line in shell_lines(code, standalone):
        run(["bash", "-c", addressed(line, standalone)], tmp_path)

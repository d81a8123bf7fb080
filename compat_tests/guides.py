"""Guides of the documents, run as they stand: blocks marked `<!-- guide: NAME -->` are joined into
one shell script, which runs in one empty folder with one shell's variables.

In a guide's blocks (`console`):

- `$ command` is run; a line that ends with a backslash, or a here-document, goes on below it;
- `$ command &` starts a server, and the guide goes on once it has printed its ready line;
- `$ command   # refused` must fail, every other command must not;
- other lines are what the command prints: each must be found in its output, in this order, where
  `...` stands for anything.

Only the well-known ports of Pulsar, BookKeeper and ZooKeeper are replaced, each by a free one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.processes import free_port, guarded

PORTS = (
    *("6650", "6651", "6660", "6661", "8080", "8081", "8443", "8444"),
    *("2181", "3181", "3182", "3183"),
)
"""What may stand in a guide; a proxy beside a broker takes the ones that the broker leaves."""

READY_S = 100
"""A server is given so long to print its ready line."""

_BLOCK = re.compile(
    r"<!-- guide: (?P<name>[\w-]+) -->\n```console\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
_HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?")
_PORT = re.compile(rf"(?<![\d.])({'|'.join(PORTS)})(?!\d)")


@dataclass
class Step:
    """One command and what it is said to print."""

    command: str
    output: list[str] = field(default_factory=list)

    @property
    def is_server(self) -> bool:
        """Whether it goes on in the background."""
        return self.command.endswith(" &")

    @property
    def fails(self) -> bool:
        """Whether it is there to show a refusal."""
        return self.command.endswith("# refused")


def guides(document: Path) -> dict[str, list[Step]]:
    """The guides of a document by name, in the order of their blocks."""
    found: dict[str, list[Step]] = {}
    for match in _BLOCK.finditer(document.read_text()):
        found.setdefault(match["name"], []).extend(steps(match["code"]))
    return found


def steps(code: str) -> list[Step]:
    """The commands of one block. Raises ValueError for output before the first one."""
    found: list[Step] = []
    lines = iter(code.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            if not found:
                raise ValueError(f"a guide's block begins with no command: {line!r}")
            if line.strip():
                found[-1].output.append(line.strip())
            continue
        command = line[2:].rstrip()
        while command.endswith("\\"):
            command += "\n" + next(lines).rstrip()
        if end := _HERE_DOCUMENT.search(command):
            for inner in lines:
                command += "\n" + inner
                if inner == end[1]:
                    break
        found.append(Step(command))
    return found


def run_guide(
    given: Sequence[Step],
    folder: Path,
    *,
    ports: Mapping[str, str] | None = None,
    timeout_s: float = 500,
) -> None:
    """Run a guide in an empty folder; nothing that it started is left. `ports` are those of servers
    that are there already, by what the guide calls them. Raises AssertionError.
    """
    ports = {port: str(free_port()) for port in PORTS} | dict(ports or {})
    notes = folder.with_name(folder.name + ".guide")
    notes.mkdir()
    script = notes / "script.sh"
    script.write_text("".join(_piece(n, step, ports, notes) for n, step in enumerate(given)))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        guarded(["bash", str(script)]),
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        shell.wait(timeout_s)
    except subprocess.TimeoutExpired:
        pass  # the steps below tell which one hangs
    finally:
        _end_group(shell)
    for number, step in enumerate(given):
        _check(number, step, ports, notes)


def _end_group(shell: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    shell.wait()


def _placed(text: str, ports: Mapping[str, str]) -> str:
    return _PORT.sub(lambda match: ports[match[1]], text)


def _piece(number: int, step: Step, ports: Mapping[str, str], notes: Path) -> str:
    """Shell text of one step: it leaves its output and its code, and ends the script if it is not
    as told.
    """
    output, code = notes / f"{number}.out", notes / f"{number}.code"
    command = _placed(step.command, ports)
    if step.is_server:
        return (
            f"{command.removesuffix(' &')} > '{output}' 2>&1 &\nserver=$!\n"
            f"for _ in $(seq {READY_S * 20}); do\n"
            f"  grep -q '^ready in ' '{output}' && echo 0 > '{code}' && break\n"
            "  kill -0 $server 2> /dev/null || exit 1\n  sleep 0.05\ndone\n"
            f"[ -e '{code}' ] || exit 1\n"
        )
    is_right = "-ne 0" if step.fails else "-eq 0"
    return (
        f"{{ {command}\n}} > '{output}' 2>&1\ncode=$?\necho $code > '{code}'\n"
        f"[ $code {is_right} ] || exit 1\n"
    )


def _check(number: int, step: Step, ports: Mapping[str, str], notes: Path) -> None:
    output, code = notes / f"{number}.out", notes / f"{number}.code"
    printed = output.read_text(errors="replace") if output.exists() else "(it was not reached)"
    told = f"$ {step.command}\n{printed}"
    assert code.exists(), f"did not end, or a server that is not ready:\n{told}"
    assert (int(code.read_text()) != 0) == step.fails, f"ended with {code.read_text()}{told}"
    at = 0
    for line in step.output:
        pattern = ".*".join(re.escape(part) for part in _placed(line, ports).split("..."))
        match = re.compile(pattern).search(printed, at)
        assert match, f"the output has no {line!r} where it should:\n{told}"
        at = match.end()

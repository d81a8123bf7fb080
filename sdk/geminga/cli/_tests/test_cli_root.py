"""The `geminga` command finds its sub-commands, and imports only the called one."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from geminga.cli import main


def test_sub_commands_come_from_entry_points() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    assert {"standalone", "bookieshell", "client", "perf"} <= set(names)
    assert main.get_command(context, "nonsense") is None


def test_wrong_usage_is_exit_code_2() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["standalon"], "standalone"), (["client", "prodce"], "produce"), (["perf", "rea"], "read")],
)
def test_a_misspelt_command_is_told_what_was_meant(arguments: list[str], meant: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert f"No such command {arguments[-1]!r}. Did you mean {meant}" in result.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("client produce -u pulsar://x t", "-u stands before 'produce', behind 'geminga client'."),
        ("admin brokers list --admin-url x", "--admin-url stands before 'brokers', behind"),
    ],
)
def test_an_option_of_a_group_behind_its_command(line: str, told: str) -> None:
    result = CliRunner().invoke(main, line.split(), prog_name="geminga")
    assert result.exit_code == 2
    assert told.removesuffix(".") in result.output
    wrong = CliRunner().invoke(main, ["client", "produce", "--nonsense", "t"])
    assert "No such option" in wrong.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("perf --url pulsar://x produce t", "--url stands behind 'produce': geminga perf produce"),
        ("perf -u pulsar://x consume t", "-u stands behind 'consume': geminga perf consume -u ..."),
        ("--admin-url x admin brokers list", "--admin-url stands behind 'admin': geminga admin"),
        (
            "admin topics -s 1M offload t",
            "-s stands behind 'offload': geminga admin topics",
        ),
        ("perf --nonsense produce t", "No such option"),
    ],
)
def test_an_option_of_a_command_before_it(line: str, told: str) -> None:
    result = CliRunner().invoke(main, line.split(), prog_name="geminga")
    assert result.exit_code == 2
    assert told in result.output


def _pipes(*more: Exception) -> Exception:
    return ExceptionGroup("outer", [ExceptionGroup("inner", [BrokenPipeError(32, "gone"), *more])])


def test_output_that_nobody_reads_ends_a_command_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised in a task, it comes in a group; a pipe that isn't all that is wrong stays told."""
    raised = [_pipes()]

    @click.command()
    def ending() -> None:
        raise raised[0]

    monkeypatch.setattr(main, "get_command", lambda _ctx, _name: ending)
    result = CliRunner().invoke(main, ["ending"])
    assert (result.exit_code, result.output) == (1, "")
    raised[0] = _pipes(ValueError("told"))
    assert CliRunner().invoke(main, ["ending"]).exception is raised[0]


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.startswith("geminga, version ")


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, geminga.cli; print('trio' in sys.modules, 'google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_ctrl_c_while_it_imports() -> None:
    code = (
        "import signal, sys\n"
        "class Late:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Late())\n"
        "from geminga._command import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def without(modules: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command without these packages."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules!r})); "
        f"from geminga.cli import main; main({arguments!r}, prog_name='geminga')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("standalone", "starlette", "server"),
        ("standalone", "rocksdict", "server"),
        ("proxy", "h11", "server"),
        ("tokens", "cryptography", "server"),
        ("sql", "pyspark", "spark"),
    ],
)
@pytest.mark.slow
def test_a_missing_extra_is_one_sentence(command: str, missing: str, extra: str) -> None:
    more = {
        "proxy": [
            "--broker-service-url",
            "pulsar://127.0.0.1:1",
            "--service-port",
            "0",
            "--web-port",
            "0",
        ],
        "standalone": ["--in-memory", "--broker-port", "0", "--web-port", "0"],
        "tokens": ["create-secret-key"],
    }
    done = without([missing], command, *more.get(command, []))
    assert done.returncode == (1 if command == "sql" else 2), done
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert missing in done.stderr.lower().replace("spark is not", "pyspark is not")
    assert f"geminga[{extra}]" in done.stderr


def test_help_lists_all_commands_without_the_extras() -> None:
    done = without(["starlette", "cryptography", "pyspark", "rocksdict"], "--help")
    assert done.returncode == 0, done.stderr
    assert {"standalone", "tokens", "sql"} <= {line.split()[0] for line in _lines(done.stdout)}


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("  ")]


@pytest.mark.slow
def test_testing_without_the_extra_is_one_sentence() -> None:
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "import geminga.testing\n"
        "try:\n  with geminga.testing.broker(): pass\n"
        "except geminga.testing.BrokerStartFailed as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "geminga[server]" in done.stdout, done

"""Refusals before Spark is started, and the cost of the command's import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_pulsar.cli import sql


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--option", "startingOfsets=earliest"],
            "startingOfsets: is unknown; did you mean startingOffsets",
        ),
        (["--option", "mode"], "--option: 'mode' is not KEY=VALUE"),
        (["--topic", "=x"], "--topic: '' is not KEY=VALUE"),
        (["--conf", "x"], "--conf: 'x' is not KEY=VALUE"),
        (["--format", "xml"], "'xml' is not one of"),
        (["--file", "no-such-file"], "does not exist"),
        (["--service-url", "ftp://x"], "service"),
        (["--url", "ftp://x"], "service"),
        (["--thrift-server", "-e", "select 1"], "--thrift-server runs no statements"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(sql, arguments)
    assert done.exit_code == 2, done.output
    assert complaint in done.output


def test_secrets_of_a_file_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# who\n\npulsar.client.authParams=token:hush\nnothing like hush\n")
    done = CliRunner().invoke(sql, ["--options-file", str(file)])
    assert done.exit_code == 2
    assert "--options-file: line 4 is not KEY=VALUE" in done.output
    assert "hush" not in done.output


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = CliRunner().invoke(sql, ["-e", "select 1"])
    assert done.exit_code == 1
    assert "Spark needs Java 17" in done.output


def test_the_import_is_light() -> None:
    code = """import sys, pyspark_pulsar.cli
assert not {"pyspark", "pyarrow", "trio", "geminga", "msgspec"} & set(sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True)

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from geminga.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_GEMINGA_COMPLETE" in result.output


def test_only_known_shells() -> None:
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 2


def completed(words: str) -> set[str]:
    """What fish would offer behind these words."""
    environment = {
        **os.environ,
        "_GEMINGA_COMPLETE": "fish_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": words.rpartition(" ")[2],
    }
    code = "from geminga._command import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return {line.partition(",")[2].partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.slow
def test_what_is_offered() -> None:
    assert {"admin", "client"} <= completed("geminga ")
    assert completed("geminga admin topi") == {"topics", "topicPolicies"}
    assert {"stats", "stats-internal"} == completed("geminga admin topics stat")
    assert "--get-precise-backlog" in completed("geminga admin topics stats --get-p")
    assert completed("geminga admin topics list --format ") >= {"auto", "json", "table"}

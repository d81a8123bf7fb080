"""The helper that skips: only what is missing skips, and the reason is told."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from compat_tests.apache import jars
from compat_tests.apache.jars import PeerMissing, require_java
from compat_tests.apache.links import NotPermitted, open_links
from compat_tests.missing import REQUIRED, SPARK, skipped_without
from compat_tests.test_tidy import sources, text_of, tree_of


@pytest.fixture(autouse=True)
def not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)


def test_what_is_missing_skips_and_says_what() -> None:
    with (
        pytest.raises(pytest.skip.Exception, match="Spark is not here: no-such-java is not inst"),
        skipped_without(SPARK),
    ):
        require_java("no-such-java")


def test_nothing_else_skips() -> None:
    with pytest.raises(ValueError, match="a mistake"), skipped_without(SPARK):
        raise ValueError("a mistake")
    with skipped_without(SPARK):
        pass
    with pytest.raises(PeerMissing):
        require_java("no-such-java")


def test_what_is_required_and_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    with (
        pytest.raises(pytest.fail.Exception, match="Spark is not here: no-such-java is not inst"),
        skipped_without(SPARK),
    ):
        require_java("no-such-java")
    monkeypatch.setenv(REQUIRED, "0")
    with pytest.raises(pytest.skip.Exception), skipped_without(SPARK):
        require_java("no-such-java")


def test_namespaces_that_are_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.CalledProcessError(2, command, stderr=b"Operation not permitted")

    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(NotPermitted, match="type bridge: Operation not permitted"), open_links():
        pass


def test_a_download_that_failed_is_not_begun_for_each_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maven may need minutes to find that nothing can be reached, and hundreds of tests ask."""
    begun: list[list[str]] = []

    def failing(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        begun.append(command)
        return subprocess.CompletedProcess(command, 1, "no route to host", "")

    monkeypatch.setenv("GEMINGA_PEERS_DIR", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(subprocess, "run", failing)
    monkeypatch.setattr(jars, "_failures", {})
    for _ in range(3):
        with pytest.raises(PeerMissing, match=r"could not fetch .*: no route to host"):
            jars.jars()
    assert len(begun) == 1


def skips(name: str) -> list[int]:
    """Lines of a file on which a test may be skipped by pytest's own means."""
    words = ("skip", "skipif", "importorskip")
    if "skip" not in text_of(name):  # most files, which would take a while to parse
        return []
    return [
        node.lineno
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Attribute)
        and node.attr in words
        and ast.unparse(node.value) in ("pytest", "pytest.mark", "unittest")
    ]


def test_tests_are_skipped_in_one_place_only() -> None:
    found = {name: lines for name in sources() if (lines := skips(name))}
    assert len(found.pop("compat_tests/missing.py")) == 2
    found.pop("compat_tests/test_missing.py")  # these
    assert found == {}
